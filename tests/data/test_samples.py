"""Tables on disk, against files that csv, NumPy and pyarrow wrote or read by themselves."""

import csv
import io
import json
import os
import re
import sys
import zipfile

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longstep as ls
from longstep.cvxpy import from_cvxpy
from longstep.data.samples import read_samples
from longstep.data.tables import make_solution_columns, make_variable_columns, write_solutions, write_table
from longstep.errors import SamplesError
from longstep.families.names import Block, Layout

# A vector, a matrix, a semidefinite matrix by its upper triangle, a diagonal one and a scalar with bounds.
LAYOUT = Layout(
    [
        Block("mu", np.array([0, 1, 2])),
        Block("M", np.array([[3, 4], [5, 6]])),
        Block("C", np.array([[7, 8], [8, 9]]), definite=1),
        Block("D", np.array([[10, -1], [-1, 11]])),
        Block("price", np.array(12), np.array(0.0), np.array(100.0)),
    ],
    [],
)
COLUMNS = [
    "mu[0]", "mu[1]", "mu[2]", "M[0,0]", "M[0,1]", "M[1,0]", "M[1,1]", "C[0,0]", "C[0,1]", "C[1,1]", "D[0,0]",
    "D[1,1]", "price",
]  # fmt: skip
PAIR = Layout([Block("a", np.array(0)), Block("b", np.array([1]))], [])
KINDS = ["csv", "parquet", "npz"]


def samples(count=5, seed=0):
    """Independent of the layout: column by column."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 13))
    x[:, 7], x[:, 9], x[:, 12] = 2 + rng.random(count), 3 + rng.random(count), 50 * rng.random(count)
    x[:, 8] = rng.random(count)
    return x


def needs(kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")


def put(path, columns):
    """A table written without longstep."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(np.asarray(c).tolist() for c in columns.values()), strict=True))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = [pa.array(np.asarray(c).tolist()) for c in columns.values()]
        pq.write_table(pa.Table.from_arrays(arrays, names=list(columns)), path)
    else:
        np.savez(path, **columns)
    return path


def exactly(message):
    return pytest.raises(SamplesError, match=f"^{re.escape(message)}$")


def text(tmp_path, content, layout=PAIR):
    path = tmp_path / "past.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_samples(path, layout)


def refused(tmp_path, message, content, layout=PAIR):
    with exactly(f"{tmp_path / 'past.csv'}: {message}"):
        text(tmp_path, content, layout)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_in_any_order_with_others_among_them(tmp_path, kind):
    needs(kind)
    x = samples()
    order = np.random.default_rng(1).permutation(13)
    columns = {"time": [f"2024-01-0{k + 1}" for k in range(5)]} | {COLUMNS[j]: x[:, j] for j in order} | {"": [0] * 5}
    found = read_samples(put(tmp_path / f"past.{kind}", columns), LAYOUT)
    assert found.dtype == np.float64
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("kind", KINDS)
def test_what_write_table_wrote_is_read_again(tmp_path, kind):
    needs(kind)
    x = samples()
    path = tmp_path / "new folder" / f"past.{kind.upper()}"
    write_table(path, dict(zip(COLUMNS, x.T, strict=True)))
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    np.testing.assert_array_equal(read_samples(str(path), LAYOUT), x)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_said_twice_must_agree(tmp_path, kind):
    needs(kind)
    x = samples()
    columns = dict(zip(COLUMNS, x.T, strict=True))
    agreeing = {**columns, "C[1,0]": x[:, 8], "D[0,1]": np.zeros(5)}
    np.testing.assert_array_equal(read_samples(put(tmp_path / f"past.{kind}", agreeing), LAYOUT), x)
    other = np.where(np.arange(5) == 3, 0.5, x[:, 8])
    with pytest.raises(SamplesError, match=r"C\[1, 0\] of instance 3 does not fit: 'C' must be symmetric"):
        read_samples(put(tmp_path / f"past.{kind}", {**agreeing, "C[1,0]": other}), LAYOUT)
    with pytest.raises(SamplesError, match=r"D\[0, 1\] of instance 0 .*'D' must be zero outside its pattern"):
        read_samples(put(tmp_path / f"past.{kind}", {**agreeing, "D[0,1]": np.ones(5)}), LAYOUT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_checks_values(tmp_path, kind):
    needs(kind)
    x = samples()
    x[3, 12] = -2.0
    where = " (line 5)" if kind == "csv" else ""
    path = put(tmp_path / f"past.{kind}", dict(zip(COLUMNS, x.T, strict=True)))
    with pytest.raises(SamplesError) as caught:
        read_samples(path, LAYOUT)
    assert str(caught.value) == f"{path}: price of instance 3 is -2, less than its bound 0{where}"
    x[3, 12], x[2, 8] = 2.0, 4.0
    put(path, dict(zip(COLUMNS, x.T, strict=True)))
    with pytest.raises(SamplesError, match=r"'C' of instance 2 must be positive semidefinite"):
        read_samples(path, LAYOUT)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_missing_or_wrong(tmp_path, kind):
    needs(kind)
    path = put(tmp_path / f"past.{kind}", {"mu[1]": [1.0], "note": [2.0]})
    with pytest.raises(SamplesError) as caught:
        read_samples(path, LAYOUT)
    names = "'mu[0]', 'mu[2]', 'M[0,0]', 'M[0,1]', 'M[1,0]', 7 more"
    assert str(caught.value).startswith(
        f"{path}: there is no column {names}; the file has 'mu[1]', 'note'. Columns with"
    )
    put(path, {"a": [1.0], "b[0]": [2.0], "b[1]": [3.0]})
    with pytest.raises(SamplesError, match=r"column 'b\[1\]' is no entry of the parameter 'b', which has shape \(1,\)"):
        read_samples(path, PAIR)


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_no_bytes_no_rows(tmp_path, kind):
    needs(kind)
    path = tmp_path / f"past.{kind}"
    with pytest.raises(FileNotFoundError, match=f"^there is no file {re.escape(str(path))}$"):
        read_samples(path, PAIR)
    path.touch()
    with pytest.raises(SamplesError) as caught:
        read_samples(path, PAIR)
    assert str(caught.value) == f"{path}: the file is empty; it needs values for 'a', 'b[0]'"
    put(path, {"a": np.zeros(0), "b[0]": np.zeros(0)})
    with pytest.raises(SamplesError, match="there are no rows; one is needed for each instance"):
        read_samples(path, PAIR)
    with pytest.raises(SamplesError, match="the problem has no parameters"):
        read_samples(path, Layout([], []))


def test_unknown_kinds_of_files(tmp_path):
    for name, found in (("past.xlsx", "the suffix '.xlsx'"), ("past", "no suffix")):
        (tmp_path / name).touch()
        words = f"{re.escape(str(tmp_path / name))} has {found}; use .csv, .parquet"
        with pytest.raises(ValueError, match=f"{words}, .npz or .npy"):
            read_samples(tmp_path / name, PAIR)
        with pytest.raises(ValueError, match=f"{words} or .npz"):
            write_table(tmp_path / name, {"a": np.zeros(1)})
    with pytest.raises(SamplesError, match="is a folder; name a file in it"):
        read_samples(tmp_path, PAIR)


@pytest.mark.parametrize(
    "content",
    [
        "a,b[0]\n1,2.5e-3\n-3,4\n",
        "\ufeffa,b[0]\r\n1,2.5e-3\r\n-3,4\r\n\r\n\n  \n",
        "b[0];a\n2.5E-03; 1\n\n4.;-3e0",
        '\ufeff"b[0]";"a, b";"a"\n0.0025;"x;1,5\ny";1\n4;;-3\n',
        " a , b[0],\n1,+.0025,\n-3,4,\n",
        "\n\na,b[0]\r1,25e-4\r-3,4\r",
    ],
)
def test_spellings_of_one_table(tmp_path, content):
    np.testing.assert_array_equal(text(tmp_path, content), [[1, 0.0025], [-3, 4]])


def test_one_column_alone_and_names_with_commas(tmp_path):
    one = Layout([Block("a", np.array(0))], [])
    np.testing.assert_array_equal(text(tmp_path, "a\n1\n\n22\n", one), [[1], [22]])
    np.testing.assert_array_equal(text(tmp_path, "t;a\n1,5;22\n", one), [[22]])
    x = samples(2)
    rows = "\n".join(",".join(map(repr, row)) for row in np.insert(x, 13, x[:, 8], axis=1).tolist())
    quoted = ",".join(f'"{name}"' for name in [*COLUMNS, "C[1,0]"])
    np.testing.assert_array_equal(text(tmp_path, f"{quoted}\n{rows}", LAYOUT), x)
    np.testing.assert_array_equal(
        text(tmp_path, f"{';'.join(COLUMNS)}\n{';'.join(map(repr, x[0].tolist()))}", LAYOUT), x[:1]
    )
    cube = Layout([Block("a", np.array([[[0]]])), Block("b", np.array(1))], [])
    np.testing.assert_array_equal(text(tmp_path, '1],"a[0,0,0]",odd[1,b\n9,1,8,2\n', cube), [[1, 2]])
    with pytest.raises(SamplesError, match=re.escape("line 2: a[0,0 is read as two columns; names with a comma need")):
        text(tmp_path, "\na[0,0,0],b\n1,2\n", cube)
    with pytest.raises(SamplesError, match=r'need quotes: "M\[0,0\]"'):
        text(tmp_path, f"{','.join(COLUMNS)}\n{rows}", LAYOUT)


def test_more_rows_than_are_held_at_a_time(tmp_path):
    x = np.random.default_rng(2).normal(size=(20_000, 2))
    content = io.StringIO()
    np.savetxt(content, x, "%.17g", ",", header="a,b[0]", comments="")
    np.testing.assert_array_equal(text(tmp_path, content.getvalue()), x)
    lines = content.getvalue().splitlines()
    lines[17_000] = "1,two"
    refused(tmp_path, "line 17001, column 'b[0]': 'two' is not a number; write it as 1.5 or 1.5e-3", "\n".join(lines))


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("line 3, column 'a': 'one' is not a number; write it as 1.5 or 1.5e-3", "b[0],a\n1,2\n3,one\n"),
        ("line 2, column 'a': '1,5' is not a number; write it as 1.5 or 1.5e-3", "a;b[0]\n1,5;2\n"),
        ("line 2, column 'a': '1_000' is not a number; write it as 1.5 or 1.5e-3", "a,b[0]\n1_000,2\n"),
        (r"line 2, column 'a': '1\x1c' is not a number; write it as 1.5 or 1.5e-3", "a,b[0]\n1\x1c,2\n"),
        ("line 5, column 'b[0]': the cell is empty; fill it in or remove the row", 'a,b[0],t\n1,2,"\n"\n\n3, ,\n'),
        ("line 2, column 'b[0]': 'NaN' is not finite; correct it or remove the row", "a,b[0]\n1,NaN\n"),
        ("line 2, column 'a': '-inf' is not finite; correct it or remove the row", "a,b[0]\n-inf,x\n"),
        ("line 2, column 'a': '1e999' is not finite; correct it or remove the row", "a,b[0]\n1e999,2\n"),
        ("line 4 has 2 cells, but the header has 3; complete or remove it", "\na,b[0],t\n1,2,3\n4,5\n"),
        (
            "line 2 has 4 cells, but the header has 2; write 1.5 and not 1,5, and quote other commas",
            "a,b[0]\n1,5,2,5\n",
        ),
        ("there is more than one column 'a'; keep one", "a,b[0],a\n1,2,3\n"),
        (
            "there is no column 'a', 'b[0]'; the file has '1', '2'. If they are in the order of the parameters' "
            "entries, say columns='position' (--columns position)",
            "1;2\n3;4\n",
        ),
        ("there are no rows; one is needed for each instance", "a,b[0]\n\n"),
        ("the file is empty; it needs values for 'a', 'b[0]'", "\ufeff\n  \n"),
        ("line 3: unexpected end of data; check the quotes up to there", 'a,b[0]\n1,"2\n3,4'),
        ("line 1: unexpected end of data; check the quotes up to there", '"a,b[0]\n1,2\n'),
        ("not UTF-8 text (invalid start byte); save it as CSV in UTF-8", "a,b[0],é\n1,2,3\n".encode("utf-16")),
        ("not UTF-8 text (invalid continuation byte); save it as CSV in UTF-8", "a,b[0],é\n1,2,3\n".encode("latin1")),
    ],
)
def test_faults_in_csv(tmp_path, message, content):
    refused(tmp_path, message, content)


def test_two_entries_with_one_name(tmp_path):
    layout = Layout([Block("a", np.array([0])), Block("a[0]", np.array(1))], [])
    refused(
        tmp_path, "two entries of the parameters have the same name; rename one of the parameters", "a[0]\n1", layout
    )
    both = Layout([], [Block("a", np.array([0])), Block("a[0]", np.array(1))])
    with pytest.raises(ValueError, match=r"two entries of the variables are called 'a\[0\]'"):
        make_variable_columns(both, solution(np.zeros((1, 2))))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_floats_survive_csv(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("csv") / "past.csv"
    free = Layout([Block("p", np.array(0)), Block("q", np.array([1, 2]))], [])
    x = np.array(values)[:, None] * [1.0, -1.0, 0.5]
    write_table(path, dict(zip(["q[0]", "p", "q[1]"], x.T, strict=True)))
    np.testing.assert_array_equal(read_samples(path, free).view(int), x[:, [1, 0, 2]].view(int))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["q[0]"]).hex() for row in rows] == [float(v).hex() for v in values]


def test_parquet_types(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "past.parquet"

    def stored(a, names=("a", "b[0]")):
        pq.write_table(pa.Table.from_arrays([a, pa.array([1, 2])], names=names), path)
        return path

    for array in (pa.array([3, 4], pa.uint8()), pa.array([3, 4], pa.float32()), pa.array([3, 4], pa.decimal128(5, 2))):
        np.testing.assert_array_equal(read_samples(stored(array), PAIR), [[3, 1], [4, 2]])
    for array in (pa.array(["3", "4"]), pa.array([True, False]), pa.array([3, 4], pa.timestamp("us"))):
        with exactly(f"{path}: column 'a' holds {array.type}, not numbers; convert it"):
            read_samples(stored(array), PAIR)
    for array in (pa.array([3, None]), pa.array([3, None], pa.float32()), pa.array([3, float("nan")])):
        with pytest.raises(SamplesError, match="a of instance 1 is nan; it must be finite"):
            read_samples(stored(array), PAIR)
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 3, names=["a", "a", "b[0]"]), path)
    with pytest.raises(SamplesError, match="there is more than one column 'a'; keep one"):
        read_samples(path, PAIR)
    # A name with a point is no path into nested columns.
    dotted = Layout([Block("a", np.array(0)), Block("a.b", np.array(1))], [])
    np.testing.assert_array_equal(read_samples(stored(pa.array([3, 4]), ("a.b", "a")), dotted), [[1, 3], [2, 4]])


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "past.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"^Parquet files need pyarrow: pip install pyarrow$"):
        read_samples(tmp_path / "past.parquet", PAIR)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        write_table(tmp_path / "new.parquet", {"a": np.zeros(1)})


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_damaged_files(tmp_path, kind):
    needs(kind)
    whole = put(tmp_path / f"past.{kind}", {"a": [1.0, 2.0], "b[0]": [3.0, 4.0]})
    content = whole.read_bytes()
    words = f"{kind} file .*; write it again$"
    for length in {*range(1, len(content), 37), len(content) - 1}:
        whole.write_bytes(content[:length])
        with pytest.raises(SamplesError, match=f"(?i)^{re.escape(str(whole))}: damaged, or no {words}"):
            read_samples(whole, PAIR)
    whole.write_bytes(b"a,b[0]\n1,2\n" * 20)
    with pytest.raises(SamplesError, match=f"(?i)damaged, or no {words}"):
        read_samples(whole, PAIR)


def test_a_changed_npz_file_is_noticed(tmp_path):
    path = put(tmp_path / "past.npz", {"a": np.zeros(9), "b": np.ones((9, 1))})
    content = bytearray(path.read_bytes())
    content[content.index(np.ones(9).tobytes()) + 5] ^= 255
    path.write_bytes(bytes(content))
    with pytest.raises(SamplesError, match=r"damaged, or no NPZ file .*CRC"):
        read_samples(path, PAIR)


def test_npz_by_parameter_or_as_one_array(tmp_path):
    x = samples()
    C = np.stack([x[:, 7:9], x[:, 8:10]], axis=1)
    D = np.zeros((5, 2, 2))
    D[:, [0, 1], [0, 1]] = x[:, 10:12]
    named = {"price": x[:, 12], "D": D, "C": C, "M": x[:, 3:7].reshape(5, 2, 2), "mu": x[:, :3], "note": np.zeros(3)}
    path = put(tmp_path / "past.npz", named)
    np.testing.assert_array_equal(read_samples(path, LAYOUT), x)
    np.testing.assert_array_equal(read_samples(put(path, named | {"mu": x[0, :3]}), LAYOUT)[:, :3], [x[0, :3]] * 5)
    np.testing.assert_array_equal(read_samples(put(path, {"x": x}), LAYOUT), x)
    np.testing.assert_array_equal(read_samples(put(path, {"x": np.arange(6).reshape(3, 2)}), PAIR)[2], [4, 5])
    of_x = Layout([Block("x", np.array([0, 1]))], [])
    np.testing.assert_array_equal(read_samples(put(path, {"x": x[:, :2]}), of_x), x[:, :2])


@pytest.mark.parametrize(
    ("message", "arrays"),
    [
        ("'b' must have shape (1,), or (N, 1) for N instances; got (3, 2)", {"a": np.zeros(3), "b": np.zeros((3, 2))}),
        (
            "the parameters must have one common number of instances, got a: 3, b: 2",
            {"a": np.zeros(3), "b": np.zeros((2, 1))},
        ),
        (
            "the arrays need a leading axis of instances; for one instance save value[None]",
            {"a": np.zeros(()), "b": np.zeros(1)},
        ),
        ("there are no rows; one is needed for each instance", {"a": np.zeros(0), "b": np.zeros((0, 1))}),
        ("there is no array 'b'; the file has 'a', 'x'", {"a": np.zeros(3), "x": np.zeros((3, 2))}),
        ("there is no array 'a', 'b'; the file has 'c'", {"c": np.zeros(3)}),
        ("the array 'x' must have shape (N, 2), got (3, 3)", {"x": np.zeros((3, 3))}),
        ("the array 'x' must have shape (N, 2), got (2,)", {"x": np.zeros(2)}),
        ("a of instance 1 is inf; it must be finite", {"a": [0.0, np.inf], "b": np.zeros((2, 1))}),
        ("the array 'a' holds complex128, not real numbers; convert it", {"a": [1j], "b": np.zeros((1, 1))}),
        ("the array 'a' holds <U1, not real numbers; convert it", {"a": ["1"], "b": np.zeros((1, 1))}),
        ("arrays that are columns must be vectors of one length, got (1,), (2,)", {"a": [1.0], "b[0]": [1.0, 2.0]}),
        ("arrays that are columns must be vectors of one length, got (1, 1)", {"a": [[1.0]], "b[0]": [[1.0]]}),
    ],
)
def test_faults_in_npz(tmp_path, message, arrays):
    path = put(tmp_path / "past.npz", arrays)
    with exactly(f"{path}: {message}"):
        read_samples(path, PAIR)


def test_npz_files_of_other_things(tmp_path):
    path = put(tmp_path / "past.npz", {"a": np.array([None, {}]), "b": np.zeros((2, 1))})
    with pytest.raises(SamplesError, match=r"the array 'a' cannot be read .*; save it as numbers"):
        read_samples(path, PAIR)
    with path.open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    with pytest.raises(SamplesError, match="damaged, or no NPZ file"):
        read_samples(path, PAIR)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "hello")
        archive.writestr("b", "hello")
    with pytest.raises(SamplesError, match=r"the array 'a' holds .*, not real numbers"):
        read_samples(path, PAIR)


MIXED = {
    "status": np.array(["solved", 'a "b", c']),
    "u[0,1]": np.array([0.1, np.inf]),
    "file": np.array([3, -4], np.int32),
    "ok": np.array([True, False]),
    "single": np.array([0.1, 2.0], np.float32),
}


def test_tables_as_csv(tmp_path):
    write_table(tmp_path / "out.csv", MIXED)
    assert (tmp_path / "out.csv").read_bytes() == (
        b'status,"u[0,1]",file,ok,single\nsolved,0.1,3,true,0.10000000149011612\n"a ""b"", c",inf,-4,false,2.0\n'
    )


def test_tables_as_npz_and_parquet(tmp_path):
    with pytest.raises(ValueError, match=r"column called 'file' to an \.npz file: rename it, or write \.csv"):
        write_table(tmp_path / "out.npz", MIXED)
    columns = {name: column for name, column in MIXED.items() if name != "file"}
    write_table(tmp_path / "out.npz", columns)
    with np.load(tmp_path / "out.npz") as file:
        assert file.files == list(columns)
        for name, column in columns.items():
            assert file[name].dtype == column.dtype
            np.testing.assert_array_equal(file[name], column)
    pq = pytest.importorskip("pyarrow.parquet")
    write_table(tmp_path / "out.parquet", MIXED)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == list(MIXED)
    assert [str(t) for t in table.schema.types] == ["string", "double", "int32", "bool", "float"]
    assert table.to_pydict() == {name: column.tolist() for name, column in MIXED.items()}


def test_a_table_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_table(path, {"a": np.zeros(1)})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_table(path, {"a": np.ones(1)})
    assert path.read_text() == "a\n0.0\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(
    ("message", "columns"),
    [
        ("a table needs columns of one common length, got 'a': 1, 'b': 2", {"a": np.zeros(1), "b": np.zeros(2)}),
        ("a table needs columns of one common length, got no column", {}),
        ("column 'a' must be a vector .*, got float64 of shape \\(1, 2\\)", {"a": np.zeros((1, 2))}),
        ("column 'a' must be a vector .*, got object of shape \\(1,\\)", {"a": np.array([None])}),
    ],
)
def test_what_is_no_table(tmp_path, message, columns):
    with pytest.raises(ValueError, match=message):
        write_table(tmp_path / "out.csv", columns)
    assert not list(tmp_path.iterdir())


def solution(x, status=None, **others):
    """A batch as a solver returns it."""
    count = len(x)
    fields = {"y": None, "s": None, "ray_x": None, "ray_y": None, "time": 0.0, "objective": np.arange(count) + 0.5}
    fields |= {"status": np.ones(count, int) if status is None else status, "iterations": np.arange(count) + 10}
    fields |= {"safeguarded": np.arange(count) == 1, "primal_residual": np.full(count, 1e-5)}
    return ls.Solution(x=x, **(fields | {"dual_residual": np.full(count, 1e-6)} | others))


def test_columns_of_a_solution():
    variables = [
        Block("u", np.array([[0, 2], [1, 3]])),
        Block("S", np.array([[4, 5], [5, 6]])),
        Block("objective", np.array(7), np.array(0.0)),
    ]
    layout = Layout(PAIR.parameters.values(), variables, sign=-1, constant=2.0, offset=[10.0, 0.0])
    x = np.random.default_rng(3).normal(size=(3, 8))
    x[:, 7] = [-1e-9, 1.0, 2.0]
    batch = solution(x, np.array([1, 2, 4]))
    columns = make_variable_columns(layout, batch)
    assert list(columns) == [
        "u[0,0]",
        "u[0,1]",
        "u[1,0]",
        "u[1,1]",
        "S[0,0]",
        "S[0,1]",
        "S[1,0]",
        "S[1,1]",
        "objective",
    ]
    np.testing.assert_array_equal(np.stack(list(columns.values()), 1)[:, :8], x[:, [0, 2, 1, 3, 4, 5, 5, 6]])
    np.testing.assert_array_equal(columns["objective"], [0.0, 1.0, 2.0])
    found = make_solution_columns(layout, batch)
    kept = ["status", "iterations", "objective", "primal_residual", "dual_residual", "safeguarded"]
    assert list(found) == [*kept, *list(columns)[:-1], "variable.objective"]
    assert found["status"].tolist() == ["solved", "iteration limit", "primal infeasible"]
    one = make_solution_columns(layout, batch[1])
    assert {name: column.tolist() for name, column in one.items()} == {n: c[1:2].tolist() for n, c in found.items()}


def test_outside_is_a_column_where_it_is_known():
    layout = Layout(PAIR.parameters.values(), [Block("u", np.array([0]))])
    batch, flags = solution(np.zeros((2, 1))), np.array([True, False])
    assert "outside" not in make_solution_columns(layout, batch)
    object.__setattr__(batch, "outside", flags)
    assert list(make_solution_columns(layout, batch))[-2:] == ["outside", "u[0]"]
    assert make_solution_columns(layout, batch)["outside"].tolist() == [True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_from_past_data_to_a_file_of_solutions(tmp_path, kind):
    """The symmetric matrix nearest to T, with no entry over 1."""
    needs(kind)
    U, T = cp.Variable((2, 2), symmetric=True, name="U"), cp.Parameter((2, 2), symmetric=True, name="T")
    shift = cp.Parameter(name="shift")
    model = from_cvxpy(cp.Problem(cp.Maximize(3.0 + shift - cp.sum_squares(U - T)), [U <= 1]))
    past = {"T[0,0]": [0.1, -1.0], "T[0,1]": [0.2, 2.0], "T[1,1]": [0.3, 0.5], "shift": [1.0, 2.0]}
    assert sorted(model.columns) == list(past)
    x = read_samples(put(tmp_path / f"past.{kind}", past), model.layout)
    found = ls.Solver(model.family).solve_batch(x, eps_abs=1e-9, eps_rel=1e-9, max_iter=100_000)
    write_solutions(tmp_path / f"out.{kind}", model.layout, found)
    names, values = table(tmp_path / f"out.{kind}")
    assert names[:3] == ["status", "iterations", "objective"]
    assert names[-4:] == ["U[0,0]", "U[0,1]", "U[1,0]", "U[1,1]"]
    assert values["status"] == ["solved", "solved"]
    assert values["safeguarded"] in ([False, False], ["false", "false"])
    np.testing.assert_allclose(np.array(values["objective"], float), [4.0, 5.0 - 2.0], atol=1e-6)
    np.testing.assert_allclose(np.array(values["U[1,0]"], float), [0.2, 1.0], atol=1e-6)


def table(path):
    """A table read without longstep."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            names, *rows = csv.reader(file)
        return names, {name: [row[j] for row in rows] for j, name in enumerate(names)}
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        found = pq.read_table(path)
        return found.column_names, found.to_pydict()
    with np.load(path) as file:
        return file.files, {name: file[name].tolist() for name in file.files}


def test_messages_are_one_line(tmp_path):
    path = tmp_path / "past.csv"
    path.write_text(json.dumps({"a": 1, "b": [2]}, indent=1))
    with pytest.raises(SamplesError) as caught:
        read_samples(path, PAIR)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_by_aliases_and_by_position(tmp_path, kind):
    needs(kind)
    x = samples()
    own = [f"c{j}" for j in range(13)]
    path = put(tmp_path / f"past.{kind}", dict(zip(own, x.T, strict=True)))
    np.testing.assert_array_equal(read_samples(path, LAYOUT, columns="position"), x)
    aliases = {"mu": own[:3], "M": own[3:7], "C": own[7:10], "D": own[10:12], "price": "c12"}
    np.testing.assert_array_equal(read_samples(path, LAYOUT, columns=aliases), x)
    # Only some have other names, in another order.
    mixed = ["b", "time", "a", *COLUMNS[2:]]
    values = [x[:, 1], np.zeros(5), x[:, 0], *x.T[2:]]
    path = put(tmp_path / f"mixed.{kind}", dict(zip(mixed, values, strict=True)))
    np.testing.assert_array_equal(read_samples(path, LAYOUT, columns={"mu": ["a", "b", "mu[2]"]}), x)


def test_by_position_a_header_is_optional_and_lines_are_counted(tmp_path):
    path = tmp_path / "past.csv"
    for content in ("1,2\n3,4\n", "\n1;2\n3;4\n", "first,second\n1,2\n3,4\n"):
        path.write_text(content)
        np.testing.assert_array_equal(read_samples(path, PAIR, columns="position"), [[1.0, 2.0], [3.0, 4.0]])
    path.write_text("1,2\n3,x\n")
    with pytest.raises(SamplesError, match="line 2, column 'b\\[0\\]': 'x' is not a number"):
        read_samples(path, PAIR, columns="position")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("position", "there are 3 columns, but the parameters have 2 entries"),
        ({"a": "x", "c": "y"}, "'c' is no parameter; The parameters are a, b"),
        ({"a": ["x", "y"]}, "'a' has 1 entries \\('a'\\), but 2 columns are named"),
        ({"a": "x", "b": "w"}, "there is no column 'w'; the file has 'x', 'y', 'z'"),
        ({"a": "x", "b": "x"}, "one column is named for two entries"),
        ({"a": "x"}, "there is no column 'b\\[0\\]'.*columns={'a': \\[…\\], …}"),
        ("postion", "columns must be 'position', or a dict"),
    ],
)
def test_faults_in_columns(tmp_path, columns, message):
    path = tmp_path / "past.csv"
    path.write_text("x,y,z\n1,2,3\n")
    with pytest.raises(SamplesError, match=message):
        read_samples(path, PAIR, columns=columns)


def test_as_many_columns_with_other_names_are_told_of_position(tmp_path):
    path = tmp_path / "past.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(SamplesError, match="columns='position'"):
        read_samples(path, PAIR)
