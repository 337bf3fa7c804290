#!/usr/bin/env python3
"""Checks packages without running them, so those for other machines, too: composition.py MACHINE PACKAGE...

Every program and library of an archive or wheel is for the machine; finds what it needs in the package and looks nowhere
else (a wheel's also in the packages that pip brings); asks for no newer glibc and libstdc++ than docs/getting_started.md
says; and, for ARM, starts under kernels with pages of 64 KiB. The notices of what is inside are there.
"""
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
sys.dont_write_bytecode = True
import package

PAGE = {"x86_64": 0x1000, "aarch64": 0x10000}  # the largest of a kernel, in bytes
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}  # of the oldest system that has glibc 2.35, and of GCC 12
BESIDE_WHEEL = re.compile(r"^lib(torch_cpu|torch|c10|gomp|arrow|parquet|z)\.so")  # libz: every manylinux system has it


def check_file(path, root, machine, is_wheel):
    """What is wrong with one program or library."""
    if package.machine_of(path) != machine:
        return [f"for {package.machine_of(path)}"]
    text = subprocess.run(["readelf", "-ldVW", path], check=True, text=True, stdout=subprocess.PIPE).stdout
    wrong = []
    run_path = [entry for entries in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", text) for entry in entries.split(":")]
    wrong += [f"searches {entry}" for entry in run_path if not entry.startswith("$ORIGIN")]
    folders = [pathlib.Path(entry.replace("$ORIGIN", str(path.parent))) for entry in run_path]
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
        inside = any((folder / name).exists() and root in (folder / name).resolve().parents for folder in folders)
        if not inside and not package.SYSTEM.match(name) and not (is_wheel and BESIDE_WHEEL.match(name)):
            wrong.append(f"needs {name}, which is not in the package")
    for library, version in set(re.findall(r"Name: ([A-Z]+)_([0-9.]+) ", text)):
        if library in NEWEST and tuple(map(int, version.split("."))) > NEWEST[library]:
            wrong.append(f"needs {library} {version}")
    if "Name: GLIBC_ABI_DT_RELR" in text:
        wrong.append("needs GLIBC 2.36")
    alignments = [int(value, 16) for value in re.findall(r"^ *LOAD .* (0x[0-9a-f]+)$", text, re.M)]
    if not alignments or min(alignments) < PAGE[machine]:
        wrong.append(f"its segments lie at multiples of {min(alignments, default=None)} bytes")
    return wrong


def check(path, machine):
    """Prints what is wrong with a package; whether nothing is."""
    is_wheel = path.suffix == ".whl"
    wrong, files = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch).resolve()
        if is_wheel:
            zipfile.ZipFile(path).extractall(root)
        else:
            with tarfile.open(path) as archive:
                archive.extractall(root)
        for file in sorted(file for file in root.rglob("*") if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"):
            files += 1
            wrong += [f"{file.relative_to(root)}: {problem}" for problem in check_file(file, root, machine, is_wheel)]
        missing = [name for name in package.debian_packages() if not list(root.glob(f"*/licenses/{name}/copyright"))]
        held = {"torch-*": "libtorch*.so*", "pyarrow-*": "libarrow*.so*", "xgrammar": "libtemper_xgrammar.so", "nvpl": "libnvpl_*.so*"}
        missing += [name for name, library in held.items() if list(root.rglob(library)) and not list(root.glob(f"*/licenses/{name}/*"))]
        wrong += [f"no notices of {', '.join(missing)}"] if missing else []
    if machine not in path.name:
        wrong.append("its name is not of the machine")
    if not files:
        wrong.append("no program")
    print("\n".join([f"FAILED: {path.name}: {problem}" for problem in wrong] or [f"{path.name}: {files} programs and libraries for {machine}"]))
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if all([check(pathlib.Path(path), sys.argv[1]) for path in sys.argv[2:]]) and len(sys.argv) > 2 else 1)
