"""generate_c: a folder that builds anywhere, says what it needs, and notices damage."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.cli import app
from longstep.engine.start import LearnedStart
from longstep.errors import FileFormatError
from longstep.export_c import Export
from longstep.export_c.build import SAFE
from longstep.export_c.code import write_code
from longstep.families.parameter_range import Seen

from ..helpers import random_conic
from .compare import distance, varied
from .test_equality import PARAMETERS, conic, qp

STRICT = ("-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
CHECKED = (*STRICT, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FILES = ("mpc.h", "mpc_data.h", "mpc.c", "main.c", "Makefile", "CMakeLists.txt", "README.md")


def needs(*programs):
    missing = [p for p in programs if shutil.which(p) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    return ls.generate_c(qp()[0], tmp_path_factory.mktemp("export") / "mpc", prefix="mpc")


def run(program, parameter, folder, steps=None, before=()):
    """The example program on one instance: status, iterations, x."""
    path = folder / "parameter.txt"
    path.write_text("\n".join(map(repr, np.asarray(parameter, float).tolist())))
    call = [*before, str(program), str(path), *([] if steps is None else [str(steps)])]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[:500] + done.stderr
    status, iterations = map(int, re.findall(r"status (\d+), iterations (\d+)", done.stdout)[0])
    return status, iterations, np.array([float(line) for line in done.stdout.splitlines()[2:]])


def test_the_folder_and_what_it_says(export):
    assert export.files == FILES
    assert sorted(p.name for p in export.folder.iterdir()) == sorted([*FILES, "manifest.json"])
    readme = (export.folder / "README.md").read_text()
    for size in (export.rom, export.ram, export.result):
        assert f"{size:,} bytes" in readme
    assert f"distinct factorizations: {export.factors}," in readme
    assert "@" not in readme
    assert Export.open(export.folder) == export
    for name in ("mpc.h", "mpc.c", "mpc_data.h", "main.c", "Makefile", "CMakeLists.txt"):
        text = (export.folder / name).read_text()
        assert "malloc" not in text
        assert "longstep_" not in text.lower()


def test_it_builds_without_a_warning_and_gives_the_solution(export, tmp_path):
    program = export.build(options=STRICT)
    solver = qp()[0]
    for x in PARAMETERS:
        status, iterations, found = run(program, x, tmp_path)
        theirs = solver.solve(x)
        assert (status, iterations) == (theirs.status, theirs.iterations)
        assert distance(theirs.x, found) < 1e-10
    status, iterations, found = run(program, PARAMETERS[0], tmp_path, steps=7)
    assert iterations == 7
    assert distance(solver.solve(PARAMETERS[0], steps=7).x, found) < 1e-10


def test_only_prefixed_names_are_visible(export, tmp_path):
    subprocess.run(["cc", "-std=c99", "-O2", "-c", "mpc.c", "-o", tmp_path / "mpc.o"], cwd=export.folder, check=True)
    listed = subprocess.run(["nm", "-g", tmp_path / "mpc.o"], capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in listed.splitlines() if " U " not in line]
    assert defined
    assert all(name.startswith("mpc_") for name in defined)
    assert not re.search(r" [bBdDC] ", listed)
    needed = {line.split()[-1] for line in listed.splitlines() if " U " in line}
    assert needed <= {"sqrt", "memcpy", "memset", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}


def test_memory_is_as_stated(export, tmp_path):
    (tmp_path / "size.c").write_text(
        '#include "mpc.h"\n#include <stdio.h>\n'
        'int main(void) { printf("%zu %zu", sizeof(mpc_workspace), sizeof(mpc_result)); return 0; }\n'
    )
    call = ["cc", "-std=c99", f"-I{export.folder}", "size.c", "-o", "size"]
    subprocess.run(call, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "size"], capture_output=True, text=True, check=True).stdout
    assert said == f"{export.ram} {export.result}"


@pytest.mark.parametrize("kind", ["qp", pytest.param("conic", marks=pytest.mark.slow)])
def test_sanitizers_find_nothing(kind, tmp_path):
    solver = qp()[0] if kind == "qp" else conic("mixed")[0]
    export = ls.generate_c(solver, tmp_path / "c", prefix="mpc")
    program = export.build(options=CHECKED)
    parameter = 0.1 * np.ones(solver.family.parameter.size)
    for steps in (None, 0, 15):
        run(program, parameter, tmp_path, steps)


@needs("valgrind")
@pytest.mark.parametrize("kind", ["qp", pytest.param("conic", marks=pytest.mark.slow)])
def test_valgrind_finds_nothing(kind, tmp_path):
    """Built for a plain machine: valgrind does not know the newest instructions."""
    solver = qp()[0] if kind == "qp" else conic("mixed")[0]
    program = ls.generate_c(solver, tmp_path / "c").build(options=("-O2", "-g"))
    before = ("valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full")
    run(program, 0.1 * np.ones(solver.family.parameter.size), tmp_path, before=before)


def counting(export, instances, steps, compiler, options):
    """A program that takes so many steps on one of some instances, with nothing else in `go`."""
    size = len(instances[0])
    values = ", ".join("{" + ", ".join(repr(float(v)) for v in x) + "}" for x in instances)
    text = (
        f'#include "mpc.h"\nstatic mpc_workspace work;\nstatic mpc_result result;\n'
        f"static mpc_real instances[][{size}] = {{{values}}};\n"
        "__attribute__((noinline)) int go(int k, int steps)\n{\n    mpc_settings settings;\n"
        "    mpc_defaults(&settings);\n    settings.steps = steps;\n"
        "    return mpc_solve(&work, &settings, instances[k], &result) > MPC_NUMERICAL_FAILURE;\n}\n"
        "int main(int count, char **given)\n{\n    return go(given[1][0] - '0', "
        f"count > 2 ? {steps + 1} : {steps});\n}}\n"
    )
    (export.folder / "count.c").write_text(text)
    call = [*compiler, "-std=c99", *options, "mpc.c", "count.c", "-lm", "-static", "-o", "count"]
    subprocess.run(call, cwd=export.folder, check=True)
    return str(export.folder / "count")


def by_callgrind(program, *given):
    out = f"{program}.out"
    before = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=go", "--quiet")
    subprocess.run([*before, program, *given], check=True, capture_output=True)
    return int(re.findall(r"^(?:summary|totals): (\d+)", Path(out).read_text(), re.MULTILINE)[0])


def by_qemu(program, *given):
    """All instructions of the program, one a line in the emulator's log."""
    log = f"{program}.log"
    subprocess.run(["qemu-aarch64", "-singlestep", "-d", "nochain,exec", "-D", log, program, *given], check=True)
    with open(log) as lines:
        return sum(line.startswith("Trace") for line in lines)


X86, ARM = ("valgrind",), ("qemu-aarch64", "aarch64-linux-gnu-gcc")
CROSS = ("clang", "--target=aarch64-linux-gnu", "--sysroot=/usr/aarch64-linux-gnu")
BUILDS = [
    pytest.param(("gcc",), ("-O2",), by_callgrind, marks=needs(*X86, "gcc"), id="gcc"),
    pytest.param(("gcc",), SAFE, by_callgrind, marks=[needs(*X86, "gcc"), pytest.mark.slow], id="gcc-ours"),
    pytest.param(("clang",), ("-O2",), by_callgrind, marks=[needs(*X86, "clang"), pytest.mark.slow], id="clang"),
    pytest.param(("clang",), ("-O3",), by_callgrind, marks=[needs(*X86, "clang"), pytest.mark.slow], id="clang-O3"),
    pytest.param(("aarch64-linux-gnu-gcc",), ("-O2",), by_qemu, marks=[needs(*ARM), pytest.mark.slow], id="gcc-arm"),
    pytest.param(("aarch64-linux-gnu-gcc",), SAFE, by_qemu, marks=[needs(*ARM), pytest.mark.slow], id="gcc-arm-ours"),
    pytest.param(
        CROSS, ("-O2", "-fuse-ld=/usr/bin/aarch64-linux-gnu-ld"), by_qemu,
        marks=[needs(*ARM, "clang"), pytest.mark.slow], id="clang-arm",
    ),
]  # fmt: skip


INSTRUCTIONS = ["qp", "second_order", "qp with ladder", "condensed", "condensed with ladder"]
INSTRUCTIONS += [pytest.param("learned, with start", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", INSTRUCTIONS)
@pytest.mark.parametrize(("compiler", "options", "count"), BUILDS)
def test_a_number_of_steps_is_a_number_of_instructions(kind, compiler, options, count, tmp_path):
    """Whatever the instance: inside bounds or at them, zero, far away, safeguarded, unlike what training saw, on this
    rung or on that."""
    family, ladder = (conic(kind) if kind == "second_order" else qp())[0].family, kind.endswith("ladder")
    size = family.parameter.size
    rng = np.random.default_rng(0)
    if with_start := kind.endswith("start"):
        varying = {"rho": np.geomspace(0.1, 10.0, 10), "alpha": np.full(10, 1.6)}
        solver = ls.Solver(family, ls.Schedule(varying, {"rho": 1.0, "alpha": 1.6}), algorithm=Condensed())
    elif kind.startswith("condensed"):
        solver = ls.Solver(family, algorithm=Condensed(), rho=1e-3 if ladder else 1.0, alpha=1.6, ladder=ladder)
    elif ladder:
        solver = ls.Solver(family, rho_ineq=1e-3, ladder=True)
    else:
        solver = ls.Solver(family, (conic(kind) if kind == "second_order" else qp())[0].schedule)
    if with_start:
        rows = int((~(family.host.kinds.equality | family.host.kinds.is_free)).sum())
        bounds = np.full(size, 2.0)
        solver.start = LearnedStart(rng.normal(size=(rows, size)), np.zeros(rows), np.ones(rows), -bounds, bounds)
    solver.seen = Seen.of(solver.family.encode(rng.normal(size=(20, size))))
    instances = [rng.normal(size=size), np.zeros(size), 0.1 * np.ones(size), 30 * rng.normal(size=size)]
    steps = 60 if ladder else 25
    program = counting(ls.generate_c(solver, tmp_path / "c", prefix="mpc"), instances, steps, compiler, options)
    counts = [count(program, str(k)) for k in range(len(instances))]
    # The ladder takes logarithms, which are the C library's, and a start clips the parameter to what training saw.
    apart = 1e-3 if ladder else 1e-4 if with_start else 0
    assert max(counts) - min(counts) <= apart * min(counts), counts
    assert count(program, "0", "more") > counts[0]
    ended = [solver.solve(x, steps=steps) for x in instances]
    assert {s.outside for s in ended} == {True, False}


def small_mpc():
    """A double integrator over eight steps."""
    A, B, T = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.005], [0.1]]), 8
    n = 3 * T
    rows = np.zeros((2 * T, n))
    for t in range(T):
        rows[2 * t : 2 * t + 2, 3 * t + 1 : 3 * t + 3] = np.eye(2)
        rows[2 * t : 2 * t + 2, 3 * t : 3 * t + 1] = -B
        if t:
            rows[2 * t : 2 * t + 2, 3 * t - 2 : 3 * t] = -A
    initial = np.zeros((2 * T + T, 2))
    initial[:2] = A
    P = np.diag(np.tile([0.1, 1.0, 0.1], T))
    inputs = np.eye(n)[::3]
    u = np.concatenate([np.zeros(2 * T), np.ones(T)])
    return ls.QP(P, np.vstack([rows, inputs]), q=np.zeros(n), l=-u, u=u, parameter=ls.Affine(l=initial, u=initial))


# A Cortex-M4 with its unit for single precision; Debian has the compiler in gcc-arm-none-eabi, libnewlib-arm-none-eabi.
M4 = (
    *("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=c99"),
    *("-Wall", "-Wextra", "-Werror", "-pedantic"),
)


@needs("arm-none-eabi-gcc", "arm-none-eabi-size", "arm-none-eabi-nm")
@pytest.mark.parametrize("ladder", [False, True])
@pytest.mark.parametrize("precision", ["double", "float"])
def test_condensed_steps_and_a_finish_for_a_cortex_m4_are_as_large_as_said(precision, ladder, tmp_path):
    """In single precision there is no finish."""
    solver = ls.Solver(small_mpc(), algorithm=Condensed(), ladder=ladder, finish=5)
    export = ls.generate_c(solver, tmp_path / "m4", prefix="mpc", precision=precision)
    assert ("changes" in (export.folder / "mpc.h").read_text()) == (precision == "double")
    said = write_code(solver, "mpc", precision, "auto")
    assert f"about {said.text:,}" in (export.folder / "README.md").read_text()
    # No size is right but this one.
    sizes = (("workspace", export.ram), ("result", export.result))
    tests = [f"typedef char {name}_as_said[sizeof(mpc_{name}) == {size} ? 1 : -1];" for name, size in sizes]
    (export.folder / "sizes.c").write_text("\n".join(['#include "mpc.h"', *tests, ""]))
    subprocess.run([*M4, "-c", "sizes.c"], cwd=export.folder, check=True)
    promoted = ["-Wdouble-promotion"] * (precision == "float")
    for level in ("-Os", "-O2", "-O3"):
        subprocess.run([*M4, *promoted, level, "-c", "mpc.c"], cwd=export.folder, check=True)
        listed = ask("arm-none-eabi-size", "-A", export.folder / "mpc.o")
        found = re.findall(r"^\.(text|rodata|data|bss)\S*\s+(\d+)", listed, re.MULTILINE)
        # -O3 unrolls what it can.
        if level != "-O3":
            assert sum(int(size) for _, size in found) <= export.rom + said.text
        assert not any(int(size) for name, size in found if name in ("data", "bss"))
        named = ask("arm-none-eabi-nm", export.folder / "mpc.o")
        assert "mpc_solve" in named
        assert not re.search(r"alloc|\bfree\b", named)


def ask(*call):
    """What a program says."""
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout


@needs("arm-none-eabi-gcc", "arm-none-eabi-size")
def test_it_builds_for_a_cortex_m4(tmp_path):
    export = ls.generate_c(
        varied(small_mpc(), blocks=(5,)), tmp_path / "m4", prefix="mpc", precision="float", method="sparse"
    )
    call = [*M4, "-Os", "-Wdouble-promotion", "-ffunction-sections"]
    call += ["--specs=nosys.specs", "-Wl,--gc-sections", "mpc.c", "main.c", "-lm", "-o", "mpc.elf"]
    subprocess.run(call, cwd=export.folder, check=True)
    listed = subprocess.run(
        ["arm-none-eabi-size", "mpc.elf"], cwd=export.folder, capture_output=True, text=True, check=True
    )
    text, data, bss = map(int, listed.stdout.splitlines()[1].split()[:3])
    assert export.rom < text < 256 * 1024
    assert data + bss < 64 * 1024


def test_single_precision_promotes_nothing(tmp_path):
    """What a compiler for a Cortex-M4 would do in software; the tolerance that float cannot reach has a status."""
    export = ls.generate_c(varied(small_mpc(), blocks=(5,)), tmp_path / "m4", prefix="mpc", precision="float")
    subprocess.run(
        ["cc", "-std=c99", *STRICT, "-Wdouble-promotion", "-Wfloat-conversion", "-c", "mpc.c"],
        cwd=export.folder,
        check=True,
    )
    (tmp_path / "least.c").write_text(
        '#include "mpc.h"\n#include <stdio.h>\nstatic mpc_workspace w; static mpc_result r;\n'
        "int main(void) { mpc_settings s; float p[MPC_PARAMETERS] = {0.5f, 0.0f}; mpc_defaults(&s);\n"
        'printf("%d ", mpc_solve(&w, &s, p, &r)); s.eps_abs = s.eps_rel = 1e-8f;\n'
        'printf("%d ", mpc_solve(&w, &s, p, &r));\n'
        's.check_every = 0; printf("%d ", mpc_solve(&w, &s, p, &r)); mpc_defaults(&s); p[0] = 0.0f / p[1];\n'
        'printf("%d", mpc_solve(&w, &s, p, &r)); return 0; }\n'
    )
    call = ["cc", "-std=c99", f"-I{export.folder}", "least.c", str(export.folder / "mpc.c"), "-lm", "-o", "least"]
    subprocess.run(call, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "least"], capture_output=True, text=True, check=True).stdout
    assert said == "1 8 7 7"


@needs("make")
def test_make(export, tmp_path):
    folder = shutil.copytree(export.folder, tmp_path / "copy")
    subprocess.run(["make", "--quiet"], cwd=folder, check=True)
    status, _, _ = run(folder / "mpc_example", PARAMETERS[0], tmp_path)
    assert status == ls.Status.SOLVED
    subprocess.run(["make", "--quiet", "clean"], cwd=folder, check=True)
    assert sorted(p.name for p in folder.iterdir() if p.name != "mpc_example") == sorted([*FILES, "manifest.json"])


@needs("cmake", "make")
@pytest.mark.slow
def test_cmake(export, tmp_path):
    folder = shutil.copytree(export.folder, tmp_path / "copy")
    for call in (["cmake", "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(call, cwd=folder, check=True, capture_output=True)
    status, _, _ = run(folder / "build" / "mpc_example", PARAMETERS[0], tmp_path)
    assert status == ls.Status.SOLVED


def test_damage_is_noticed(export, tmp_path):
    folder = shutil.copytree(export.folder, tmp_path / "copy")
    copy = Export.open(folder)
    with (folder / "mpc_data.h").open("a") as file:
        file.write("\n")
    with pytest.raises(FileFormatError, match=r"mpc_data\.h was changed"):
        copy.build()
    (folder / "mpc_data.h").unlink()
    with pytest.raises(FileFormatError, match=r"mpc_data\.h is missing"):
        Export.open(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"manifest\.json is damaged"):
        Export.open(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(FileFormatError, match="no export folder"):
        Export.open(folder)


def test_folders_of_others_are_left_alone(tmp_path):
    solver = qp()[0]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="longstep did not write"):
            ls.generate_c(solver, tmp_path / "mine", overwrite=overwrite)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        ls.generate_c(solver, tmp_path / "file")
    ls.generate_c(solver, tmp_path / "ours", prefix="old")
    with pytest.raises(ValueError, match="overwrite=True"):
        ls.generate_c(solver, tmp_path / "ours", prefix="mpc")
    ls.generate_c(solver, tmp_path / "ours", prefix="mpc", overwrite=True)
    assert sorted(os.listdir(tmp_path / "ours")) == sorted([*FILES, "manifest.json"])


@pytest.mark.parametrize("prefix", ["", "2fast", "My", "a-b", "a b", "main", "-fplugin=x", "../a", "x" * 41, "a\n"])
def test_prefixes_must_be_names(prefix, tmp_path):
    with pytest.raises(ValueError, match="prefix must be a name"):
        ls.generate_c(qp()[0], tmp_path / "c", prefix=prefix)
    assert not (tmp_path / "c").exists()


def test_large_semidefinite_cones_are_refused(tmp_path):
    cones = ls.Cones(semidefinite=(65,))
    P, A, b, c = random_conic(0, cones, n=3)
    with pytest.raises(ValueError, match="up to order 64, this family has one of order 65"):
        ls.generate_c(ls.Solver(ls.Conic(P, A, cones, b=b, c=c)), tmp_path / "c")


def test_two_exports_live_in_one_program(tmp_path):
    """Different prefixes, two instances of each at once, in two threads."""
    for prefix, solver in (("one", qp()[0]), ("two", conic("mixed")[0])):
        ls.generate_c(solver, tmp_path / prefix, prefix=prefix)
    (tmp_path / "both.c").write_text(BOTH)
    call = ["cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Ione", "-Itwo", "both.c", "one/one.c", "two/two.c"]
    subprocess.run([*call, "-lm", "-lpthread", "-o", "both"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=True)
    assert done.stdout == "same"


BOTH = r"""
#include "one.h"
#include "two.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int seed; double x[ONE_UNKNOWNS + TWO_UNKNOWNS]; } job;

static void *work(void *argument)
{
    job *j = argument;
    one_workspace *w = calloc(1, sizeof *w); one_result *r = calloc(1, sizeof *r); one_settings s;
    two_workspace *v = calloc(1, sizeof *v); two_result *q = calloc(1, sizeof *q); two_settings t;
    one_defaults(&s); two_defaults(&t); s.steps = t.steps = 40;
    double p[ONE_PARAMETERS + TWO_PARAMETERS];
    for (int i = 0; i < ONE_PARAMETERS + TWO_PARAMETERS; ++i) p[i] = 0.01 * ((i * 7 + j->seed * 13) % 11);
    for (int again = 0; again < 100; ++again) { one_solve(w, &s, p, r); two_solve(v, &t, p, q); }
    memcpy(j->x, r->x, sizeof r->x); memcpy(j->x + ONE_UNKNOWNS, q->x, sizeof q->x);
    free(w); free(r); free(v); free(q);
    return NULL;
}

int main(void)
{
    static job alone[2] = {{1, {0}}, {2, {0}}}, together[2] = {{1, {0}}, {2, {0}}};
    pthread_t thread[2];
    for (int k = 0; k < 2; ++k) work(&alone[k]);
    for (int k = 0; k < 2; ++k) pthread_create(&thread[k], NULL, work, &together[k]);
    for (int k = 0; k < 2; ++k) pthread_join(thread[k], NULL);
    printf(memcmp(alone, together, sizeof alone) ? "different" : "same");
    return 0;
}
"""


def test_the_command(tmp_path):
    solver = tmp_path / "mpc.longstep"
    qp()[0].save(solver)
    call = ["export-c", str(solver), "--out", str(tmp_path / "c"), "--prefix", "mpc", "--precision", "float", "--json"]
    done = CliRunner().invoke(app, call, prog_name="longstep")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["files"] == list(FILES)
    assert document["ram"] == Export.open(tmp_path / "c").ram
    again = CliRunner().invoke(app, call, prog_name="longstep")
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr
    assert CliRunner().invoke(app, [*call[:-1], "--overwrite"], prog_name="longstep").exit_code == 0


def forged(export, tmp_path, **changes):
    folder = shutil.copytree(export.folder, tmp_path / "copy")
    document = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(document | changes))
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"hashes": {}}, {"hashes": []}, {"hashes": None}, {"hashes": {"../precious": ""}}, {"hashes": {"precious": ""}},
        {"prefix": "-fplugin=./evil"}, {"prefix": "../mpc"}, {"prefix": "main"}, {"prefix": 3}, {"prefix": "other"},
        {"rom": "much"}, {"rom": 1e400}, {"rom": -1}, {"ram": True}, {"factors": 10**30}, {"version": "new"},
        {"version": None}, {"method": 3}, {"precision": None},
    ],
    ids=repr,
)  # fmt: skip
def test_a_forged_manifest_names_nothing_else(export, tmp_path, changes):
    (tmp_path / "precious").write_text("mine")
    folder = forged(export, tmp_path, **changes)
    with pytest.raises(FileFormatError):
        Export.open(folder)
    with pytest.raises(FileFormatError):
        ls.generate_c(qp()[0], folder, overwrite=True)
    assert (tmp_path / "precious").read_text() == "mine"
    assert (folder / "mpc.c").exists()


def test_what_is_built_is_what_was_checked(export, tmp_path):
    """The compiler sees a copy: a file that is changed while it runs is not built."""
    folder = shutil.copytree(export.folder, tmp_path / "copy")
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\necho '#error changed' > {folder}/mpc.c\nexec cc \"$@\"\n")
    script.chmod(0o755)
    program = Export.open(folder).build(compiler=str(script))
    assert run(program, PARAMETERS[0], tmp_path)[0] == ls.Status.SOLVED


@pytest.mark.parametrize("wrap", [(), ("rust",)])
def test_links_lead_nowhere(export, tmp_path, wrap):
    """A manifest that names rust/Cargo.toml, and a folder rust/ that is another one."""
    folder, other = shutil.copytree(export.folder, tmp_path / "mpc"), tmp_path / "other"
    other.mkdir()
    (other / "Cargo.toml").write_text("mine")
    (folder / "rust").symlink_to(other)
    if not wrap:
        document = json.loads((folder / "manifest.json").read_text())
        document["hashes"]["rust/Cargo.toml"] = "0" * 64
        (folder / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(FileFormatError, match="rust is a link"):
        ls.generate_c(qp()[0], folder, prefix="mpc", wrap=wrap, overwrite=True)
    assert {path.name: path.read_text() for path in other.iterdir()} == {"Cargo.toml": "mine"}
    assert (folder / "mpc.c").is_file()


def test_a_folder_in_the_place_of_a_file_is_left_alone(export, tmp_path):
    folder = shutil.copytree(export.folder, tmp_path / "mpc")
    (folder / "mpc.c").unlink()
    (folder / "mpc.c").mkdir()
    (folder / "mpc.c" / "precious").write_text("mine")
    with pytest.raises(FileFormatError, match="c is a folder"):
        ls.generate_c(qp()[0], folder, prefix="mpc", overwrite=True)
    assert (folder / "mpc.c" / "precious").read_text() == "mine"


@needs("gcc")
def test_a_program_takes_the_place_of_a_link(export, tmp_path):
    folder, precious = shutil.copytree(export.folder, tmp_path / "mpc"), tmp_path / "precious"
    precious.write_text("mine")
    (folder / "mpc_example").symlink_to(precious)
    program = Export.open(folder).build()
    assert precious.read_text() == "mine"
    assert not program.is_symlink()
    assert os.access(program, os.X_OK)


def test_a_map_without_entries_has_no_function(tmp_path):
    family = ls.QP(
        np.eye(2), np.eye(2), q=np.ones(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.zeros((2, 1)))
    )
    ls.generate_c(ls.Solver(family), tmp_path / "c").build(options=STRICT)


def test_a_subclass_is_not_the_algorithm(tmp_path):
    class Mine(ls.OSQP):
        """Takes other steps."""

    with pytest.raises(ValueError, match="not for Mine on QP"):
        ls.generate_c(ls.Solver(qp()[0].family, algorithm=Mine()), tmp_path / "c")
