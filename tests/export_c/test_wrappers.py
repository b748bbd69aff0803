"""A crate and a ROS 2 node around exported C: they give what the solver gives, and no name breaks out of a text."""

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from typer.testing import CliRunner

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.cli import app
from longstep.errors import FileFormatError
from longstep.export_c import Export
from longstep.families.names import Block, Layout

from .compare import distance
from .test_equality import PARAMETERS, conic, qp

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed: see https://rustup.rs")
needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
needs_cpp = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
RUST = ("rust/Cargo.toml", "rust/build.rs", "rust/src/lib.rs", "rust/examples/solve.rs")
ROS = ("ros2/package.xml", "ros2/CMakeLists.txt", "ros2/src/core.hpp", "ros2/src/node.cpp")
# Names that would end a comment, a string or a struct, are words of Rust, or are the same once they are cut to letters.
HOSTILE = ("self", 'a\n}}; compile_error!("x")', '*/ " <!-- ${prefix}', "x y", "x-y", "2")


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    return ls.generate_c(qp()[0], tmp_path_factory.mktemp("wrapped") / "mpc", prefix="mpc", wrap=["rust", "ros2"])


def write(path, values):
    path.write_text("\n".join(map(repr, np.asarray(values, float).tolist())))
    return path


def build_crate(folder):
    """The example of a crate, built without a network and without a warning."""
    environment = {**os.environ, "RUSTFLAGS": "-D warnings"}
    call = ["cargo", "build", "--offline", "--quiet", "--example", "solve"]
    done = subprocess.run(call, cwd=folder / "rust", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "rust" / "target" / "debug" / "examples" / "solve"


def run(program, *arguments):
    """The status, the steps and x that a program prints."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=True)
    head, *rest = done.stdout.splitlines()
    status, steps = re.match(r"(\w+) after (\d+) steps", head).groups()
    return status, int(steps), np.array(list(map(float, rest)))


def named_family():
    """A small QP whose parameters and variables have names that no language has."""
    layout = Layout(
        [Block(name, np.array([i])) for i, name in enumerate(HOSTILE)],
        [Block(name, np.array(i)) for i, name in enumerate(HOSTILE)],
    )
    size = len(HOSTILE)
    data = {"q": np.zeros(size), "l": -np.ones(size), "u": np.ones(size)}
    return ls.QP(2 * np.eye(size), np.eye(size), **data, parameter=ls.Affine(q=np.eye(size)), layout=layout)


def test_the_folder_has_the_wrappers_and_is_checked_with_them(export):
    assert export.files[-8:] == (*RUST, *ROS)
    assert Export.open(export.folder) == export
    for name in (*RUST, *ROS):
        assert "longstep_" not in (export.folder / name).read_text()
    changed = export.folder / "rust" / "src" / "lib.rs"
    text = changed.read_text()
    changed.write_text(text + "\n")
    with pytest.raises(FileFormatError, match=r"rust/src/lib\.rs was changed"):
        Export.open(export.folder)
    changed.write_text(text)
    assert Export.open(export.folder).build().is_file()


def test_wrappers_are_replaced_and_others_refused(tmp_path):
    folder = tmp_path / "c"
    ls.generate_c(qp()[0], folder, wrap=["rust"])
    assert (folder / "rust" / "Cargo.toml").is_file()
    assert ls.generate_c(qp()[0], folder, overwrite=True).files[-1] == "README.md"
    assert not (folder / "rust" / "Cargo.toml").exists()
    with pytest.raises(ValueError, match="wrap may name rust, ros2; got 'go'"):
        ls.generate_c(qp()[0], tmp_path / "d", wrap=["go"])
    with pytest.raises(ValueError, match=r"like \['rust'\]"):
        ls.generate_c(qp()[0], tmp_path / "d", wrap="rust")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("name", ["../outside", "rust/../../outside", "rust/other.rs"])
def test_a_manifest_names_no_other_files(export, tmp_path, name):
    folder = shutil.copytree(export.folder, tmp_path / "mpc")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["hashes"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FileFormatError, match="which is no file of an export"):
        Export.open(folder)


@needs_cargo
def test_the_crate_gives_the_solution(export, tmp_path):
    program = build_crate(export.folder)
    solver = qp()[0]
    for x in PARAMETERS:
        status, steps, found = run(program, write(tmp_path / "x.txt", x))
        expected = solver.solve(x)
        assert (status, steps) == ("Solved", expected.iterations)
        assert distance(expected.x, found) < 1e-10
    status, steps, found = run(program, tmp_path / "x.txt", 7)
    assert (status, steps) == ("IterationLimit", 7)
    assert distance(solver.solve(PARAMETERS[-1], steps=7).x, found) < 1e-10


@needs_cargo
@pytest.mark.parametrize("precision", ["double", "float"])
def test_the_crate_of_a_cone_program_gives_the_solution(precision, tmp_path):
    solver = conic("mixed")[0]
    export = ls.generate_c(solver, tmp_path / "c", prefix="fit", wrap=["rust"], precision=precision)
    x = 0.1 * np.ones(solver.family.parameter.size)
    status, _, found = run(build_crate(export.folder), write(tmp_path / "x.txt", x))
    assert status == "Solved"
    np.testing.assert_allclose(found, solver.solve(x).x, atol={"double": 1e-9, "float": 1e-3}[precision])


@needs_cargo
def test_a_finish_and_names_that_no_language_has(tmp_path):
    family = named_family()
    solver = ls.Solver(family, algorithm=Condensed(), finish=5)
    export = ls.generate_c(solver, tmp_path / "c", prefix="fn", wrap=["rust", "ros2"])
    text = (export.folder / "rust" / "src" / "lib.rs").read_text()
    assert "pub changes: i32" in text
    fields = re.findall(r"^    pub (\w+): \[Real; 1\],$", text, re.MULTILINE)
    assert len(set(fields)) == len(fields) == len(HOSTILE)
    x = np.array([0.5, -0.5, 4.0, -4.0, 0.1, 0.2])
    status, _, found = run(build_crate(export.folder), write(tmp_path / "x.txt", x))
    assert status == "Solved"
    np.testing.assert_allclose(found, np.clip(-x / 2, -1, 1), atol=1e-9)


def test_the_package_of_the_node_is_well_formed(export):
    package = ET.parse(export.folder / "ros2" / "package.xml").getroot()
    assert package.tag == "package"
    assert package.get("format") == "3"
    assert package.findtext("name") == "mpc_ros"
    assert {each.text for each in package.findall("depend")} == {"rclcpp", "std_msgs"}
    assert package.findtext("export/build_type") == "ament_cmake"


# What ament, rclcpp and std_msgs give CMake, as far as the node asks for it.
STUBS = {
    "ament_cmake": "function(ament_package)\nendfunction()\n",
    "rclcpp": "add_library(rclcpp::rclcpp INTERFACE IMPORTED)\n",
    "std_msgs": "set(std_msgs_TARGETS rclcpp::rclcpp)\n",
}


@needs_cmake
@needs_cpp
def test_cmake_configures_the_node_and_builds_its_solver(export, tmp_path):
    for name, text in STUBS.items():
        (tmp_path / f"{name}Config.cmake").write_text(text)
    found = [f"-D{name}_DIR={tmp_path}" for name in STUBS]
    call = ["cmake", "-S", export.folder / "ros2", "-B", tmp_path / "build", *found]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    subprocess.run(["cmake", "--build", tmp_path / "build", "--target", "mpc_solver"], check=True, capture_output=True)


PROGRAM = """
#include <cstdio>
#include <cstdlib>

#include "core.hpp"

int main(int, char ** given)
{
  mpc_ros::Core core;
  core.settings.eps_abs = core.settings.eps_rel = 1e-8;
  std::vector<double> parameter;
  for (char ** word = given + 1; *word != nullptr; ++word) {parameter.push_back(std::atof(*word));}
  const mpc_ros::Outcome cold = core.solve(parameter, true);
  const mpc_ros::Outcome warm = core.solve(parameter, true);
  std::printf("%d %d %d %d\\n", int(cold.status), int(warm.status), int(cold.iterations), int(warm.iterations));
  for (double value : warm.x) {std::printf("%.17g\\n", value);}
  return 0;
}
"""


@needs_cpp
def test_the_core_of_the_node_solves_and_starts_from_the_last_solution(export, tmp_path):
    (tmp_path / "main.cpp").write_text(PROGRAM)
    strict = ["-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["cc", "-std=c99", *strict, "-c", export.folder / "mpc.c", "-o", "mpc.o"], cwd=tmp_path, check=True)
    include = [f"-I{export.folder}", f"-I{export.folder / 'ros2' / 'src'}"]
    call = ["c++", "-std=c++17", *strict, *include, "main.cpp", "mpc.o", "-lm", "-o", "node"]
    subprocess.run(call, cwd=tmp_path, check=True)
    x = PARAMETERS[0]
    done = subprocess.run([tmp_path / "node", *map(repr, x.tolist())], capture_output=True, text=True, check=True)
    head, *rest = done.stdout.splitlines()
    cold, warm, first, second = map(int, head.split())
    assert (cold, warm) == (1, 1)
    assert second < first
    np.testing.assert_allclose(np.array(rest, float), qp()[0].solve(x, eps_abs=1e-9, eps_rel=1e-9).x, atol=1e-6)
    # A parameter of another length is bad input, and no point.
    done = subprocess.run([tmp_path / "node", "1.0"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "7", "0", "0"]


def test_the_command_line_writes_them(tmp_path):
    path = tmp_path / "mpc.longstep"
    qp()[0].save(path)
    call = ["export-c", str(path), "--out", str(tmp_path / "c"), "--prefix", "mpc", "--wrap", "rust", "--wrap", "ros2"]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    assert Export.open(tmp_path / "c").files[-8:] == (*RUST, *ROS)
