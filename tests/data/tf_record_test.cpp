#include "temper/data/read/tf_record.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/row_file.h"
#include "temper/data/read/row_set.h"
#include "temper/metrics/sinks/crc32c.h"
#include "tests/data/folder.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::data;

namespace {

std::string tf_golden(const std::string& name) { return golden_path("tfrecord/" + name); }

template <class Number>
std::string bytes_of_number(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string tf_record_of(const std::string& bytes) {
  const std::string length = bytes_of_number<uint64_t>(bytes.size());
  return length + bytes_of_number(masked_crc32c(length)) + bytes +
         bytes_of_number(masked_crc32c(bytes));
}

// What is wrong with a file of these bytes, less its name.
std::string tf_problem(const std::string& bytes) {
  const Folder folder;
  const std::string path = folder.write("a.tfrecord", bytes);
  try {
    RowFile file(path);
  } catch (const DataError& e) {
    const std::string what = e.what();
    return what.starts_with(path) ? what.substr(path.size()) : what;
  }
  return "no error";
}

}  // namespace

TEST_CASE("rows of TFRecord are those of the same rows as JSON lines, however they are packed") {
  for (const auto& [name, lines] : {std::pair{"rows.tfrecord", "rows.jsonl"},
                                    {"rows.tfrecord.gz", "rows.jsonl"},
                                    {"zlib.tfrecord-00000-of-00001", "rows.jsonl"},
                                    {"package.tfrecords", "package.jsonl"}}) {
    CAPTURE(name);
    const RowFile rows(tf_golden(name)), expected(tf_golden(lines));
    RowReader reader(tf_golden(name));
    REQUIRE(rows.size() == expected.size());
    for (int64_t i = 0; i < rows.size(); ++i) {
      CHECK(rows.row(i).dump() == expected.row(i).dump());
      CHECK(rows.where(i) == tf_golden(name) + ": row " + std::to_string(i + 1));
      Json row;
      REQUIRE(reader.next(row));
      CHECK(row == rows.row(i));
      CHECK(reader.where() == rows.where(i));
    }
  }
}

TEST_CASE("names say which files are TFRecord") {
  for (const char* name : {"a.tfrecord", "b/a.tfrecords", "gsm8k-train.tfrecord-00000-of-00012",
                           "a.tfrecord.gz", "a.tfrecord-1-of-2.gz"}) {
    CAPTURE(name);
    CHECK(is_tf_record(name));
    CHECK(is_row_file(std::filesystem::path(name).filename().string()));
  }
  for (const char* name : {"a.tfrecord.json", "tfrecord", "a.tfrecord-x-of-2", "a.tfrecord-1-of-",
                           "a.tfrecord-of-2", "a.tfrecord.zst", "a.tfrecord/rows.jsonl"}) {
    CAPTURE(name);
    CHECK_FALSE(is_tf_record(name));
  }
}

// A pipe can be read once: who opens it again finds no writer, and waits.
TEST_CASE("TFRecord comes through a pipe, packed or not") {
  for (const char* name : {"rows.tfrecord", "zlib.tfrecord-00000-of-00001"}) {
    CAPTURE(name);
    const Folder folder;
    const std::string path = folder.path + "/pipe.tfrecord", bytes = read_file(tf_golden(name));
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    FileDescriptor end(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    REQUIRE(end.get() >= 0);
    REQUIRE(::write(end.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    std::atomic<bool> done = false;
    std::thread writer([&] {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      const auto wait_for = [&](const auto& is_so) {
        while (!is_so() && std::chrono::steady_clock::now() < until)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
      };
      wait_for([&] {
        int unread = 0;
        return ::ioctl(end.get(), FIONREAD, &unread) != 0 || unread == 0;
      });
      end.reset(-1);
      wait_for([&] { return done.load(); });
      FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));  // who waits goes on
    });
    int64_t rows = 0;
    std::string problem;
    try {
      rows = RowFile(path).size();
    } catch (const DataError& e) {
      problem = e.what();
    }
    done = true;
    writer.join();
    CHECK(problem == "");
    CHECK(rows == RowFile(tf_golden("rows.jsonl")).size());
  }
}

TEST_CASE("numbered parts make one source, in the order of their names") {
  const Folder folder;
  const std::string bytes = read_file(tf_golden("package.tfrecords"));
  for (const char* name : {"t.tfrecord-00001-of-00002", "t.tfrecord-00000-of-00002"})
    folder.write(name, bytes);
  for (const std::string& path : {folder.path, folder.path + "/t.tfrecord-*"}) {
    const RowSet set(SourceSpec{path});
    CHECK(set.size() == 10);
    CHECK(set.row(6).at("text") == "row 1");
    CHECK(set.where(6) == folder.path + "/t.tfrecord-00001-of-00002: row 2");
  }
}

TEST_CASE("a damaged TFRecord file is an error that names its row") {
  const std::string bytes = read_file(tf_golden("rows.tfrecord"));
  const std::string first = tf_record_of(std::string("\x0a\x00", 2));
  CHECK(tf_problem("") == ": no rows");
  CHECK(tf_problem("{\"text\": \"a\"}\n") ==
        ": row 1: the checksum of the record's length is wrong; it is not a TFRecord file, or "
        "compressed otherwise than by gzip or zlib");
  CHECK(tf_problem("x") == ": row 1: the file ends within a record's length");
  // Every cut and every changed byte is noticed.
  for (size_t size = 1; size < bytes.size(); ++size) {
    const std::string what = tf_problem(bytes.substr(0, size));
    CHECK_MESSAGE((what == "no error" || what.find(": the file ends within") != what.npos), what);
  }
  for (size_t at = 0; at < bytes.size(); at += 7) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    const std::string what = tf_problem(changed);
    CHECK_MESSAGE((what.starts_with(": row ") && what.find("checksum") != what.npos), at, what);
  }
  // Lengths that no memory has.
  const std::string length = bytes_of_number(uint64_t{1} << 60);
  CHECK(tf_problem(first + length + bytes_of_number(masked_crc32c(length)))
            .starts_with(": row 2: a record of 1152921504606846976 bytes, more than 1 GiB"));
  const std::string large = bytes_of_number(uint64_t{1} << 29);
  CHECK(tf_problem(large + bytes_of_number(masked_crc32c(large))) ==
        ": row 1: the file ends within the record");
}

TEST_CASE("a record that is no Example is an error") {
  CHECK(tf_problem(tf_record_of("")) == ": row 1: an empty record, expected a tf.train.Example");
  for (const char* record : {"{\"text\": 1}", "\x0a\x05xx"})
    CHECK(tf_problem(tf_record_of(record)) ==
          ": row 1: not a tf.train.Example: its fields cannot be read");
  CHECK(tf_problem(tf_record_of("\x18\x01")) ==
        ": row 1: not a tf.train.Example: it has the field 3");
  CHECK(tf_problem(tf_record_of("\x0a\x05\x0a\x03\x0a\x01\xff")) ==
        ": row 1: a feature's name is no UTF-8");
  const std::string cut = read_file(tf_golden("rows.tfrecord.gz"));
  const Folder folder;
  const std::string path = folder.write("a.tfrecord.gz", cut.substr(0, cut.size() / 2));
  CHECK_THROWS_WITH_AS(RowFile{path}, (path + ": the gzip stream is cut short").c_str(), DataError);
}
