#include "temper/base/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("temper-file-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

// The id of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = 0;
  ::waitpid(child, &status, 0);
  return child;
}

std::string run_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const RunError& e) {
    return e.what();
  }
  return "no error";
}

bool wrote(const char* path, const std::string& text) {
  const FileDescriptor file(::open(path, O_WRONLY | O_CLOEXEC));
  return ::write(file.get(), text.data(), text.size()) == std::ssize(text);
}

}  // namespace

TEST_CASE("a file is replaced whole, or stays as it was") {
  const Folder folder;
  const std::string path = folder.file("a.txt");
  write_file_atomic(path, "one");
  CHECK(read_file(path) == "one");
  write_file_atomic(path, "two");
  CHECK(read_file(path) == "two");
  {
    AtomicFile file(path);
    file.write("half", 4);
  }
  CHECK(read_file(path) == "two");
  CHECK(folder.names() == std::vector<std::string>{"a.txt"});
  CHECK(run_error([&] {
          write_file_atomic(folder.file("gone/a.txt"), "");
        }).ends_with("cannot create: No such file or directory"));
}

TEST_CASE("a pipe, a socket or a device is no file of anybody's, and is not waited for") {
  const Folder folder;
  const std::string pipe = folder.file("model.safetensors");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink("/dev/zero", folder.file("device"));
  const auto refused = [](const std::function<void()>& opens) {
    try {
      opens();
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const std::string& path : {pipe, folder.file("device")}) {
    const std::string why = path + ": is a pipe, a socket or a device, expected a regular file";
    CHECK(refused([&] { read_file(path); }) == why);
    CHECK(refused([&] { MappedFile::open(path); }) == why);
  }
  const std::string around = "/dev/fd/../../.." + std::filesystem::absolute(pipe).string();
  CHECK(refused([&] { read_file(around); }).starts_with(around + ": "));
  // What a shell hands over is one, for a text that is read once.
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::write(ends[1], "text", 4) == 4);
  ::close(ends[1]);
  CHECK(read_file("/dev/fd/" + std::to_string(ends[0])) == "text");
  ::close(ends[0]);
}

TEST_CASE("a process that is killed while it writes leaves no file behind") {
  const Folder folder;
  const std::string path = folder.file("a.txt");
  write_file_atomic(path, "whole");
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(path);
    file.write("half", 4);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  write_file_atomic(path, "next");  // removes what is left where files cannot be without a name
  CHECK(folder.names() == std::vector<std::string>{"a.txt"});
}

TEST_CASE("temporary files of dead processes go with the next write of that file, no others") {
  const Folder folder;
  const std::string path = folder.file("a.txt"), dead = std::to_string(dead_process());
  std::vector<std::string> others{"a.txt.tmp-" + std::to_string(::getppid()), "a.txt.tmp-",
                                  "a.txt.tmp-" + dead + "x", "b.txt.tmp-" + dead};
  for (const std::string& name : others) std::ofstream(folder.file(name)) << "x";
  std::ofstream(folder.file("a.txt.tmp-" + dead)) << "x";
  write_file_atomic(path, "one");
  others.push_back("a.txt");
  std::sort(others.begin(), others.end());
  CHECK(folder.names() == others);
}

TEST_CASE("a full disk is named as the cause") {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(full >= 0);
  CHECK(run_error([&] { write_all(full, "abc", 3, "/dev/full"); }) ==
        "/dev/full: cannot write: No space left on device");
  ::close(full);
}

TEST_CASE("a failing disk is named as the cause") {
  // No page lies at the address 0: to write there is EIO, as to a disk that is broken.
  const int broken = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  if (broken < 0) {
    MESSAGE("skipped: this system has no /proc/self/mem that could be written");
    return;
  }
  CHECK(run_error([&] { write_all(broken, "abc", 3, "weights"); }) ==
        "weights: cannot write: Input/output error");
  CHECK(run_error([&] { write_all_at(broken, "abc", 3, 4096, "weights"); }) ==
        "weights: cannot write: Input/output error");
  ::close(broken);
}

TEST_CASE("a file that finds its disk full leaves what was there as it was") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {  // has a small disk of its own
    const std::string user = "0 " + std::to_string(::geteuid()) + " 1",
                      group = "0 " + std::to_string(::getegid()) + " 1";
    const bool mounted =
        ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && wrote("/proc/self/uid_map", user) &&
        wrote("/proc/self/setgroups", "deny") && wrote("/proc/self/gid_map", group) &&
        ::mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=16k") == 0;
    if (!mounted) ::_exit(77);
    const std::string path = folder.file("a.txt");
    const std::string found = run_error([&] {
      write_file_atomic(path, "whole");
      check(run_error([&] { write_file_atomic(path, std::string(65536, 'x')); }) ==
                path + ": cannot write: No space left on device",
            "the disk is not full");
      check(read_file(path) == "whole", "the file is another one");
      check(folder.names() == std::vector<std::string>{"a.txt"}, "a file is left");
    });
    if (found == "no error") ::_exit(0);
    std::fputs(found.c_str(), stderr);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    MESSAGE("skipped: this system lets no user mount a file system");
  else
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the cause of a failed call is read after the call, wherever it stands") {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  errno = 0;
  CHECK(run_error([&] { check(::write(full, "a", 1) == 1, "x: ", errno_text); }) ==
        "x: No space left on device");
  ::close(full);
}

TEST_CASE("a temporary file has no name") {
  const Folder folder;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", folder.path.c_str(), 1);
  const FileDescriptor file = open_temporary("rows");
  CHECK(file.get() >= 0);
  CHECK(folder.names().empty());
  write_all(file.get(), "abc", 3, "x");
  char read[4] = "";
  CHECK(::pread(file.get(), read, 3, 0) == 3);
  CHECK(std::string(read) == "abc");
  if (before)
    ::setenv("TMPDIR", kept.c_str(), 1);
  else
    ::unsetenv("TMPDIR");
}
