#include "temper/metrics/row.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/random.h"
#include "temper/metrics/format.h"

using namespace temper;

TEST_CASE("a row keeps its order and replaces in place") {
  MetricsRow row(3);
  row.set("b", 1.5);
  row.set("a", 2);
  row.set("b", 2.5f);
  CHECK(row.json() == "{\"step\": 3, \"b\": 2.5, \"a\": 2}");
  CHECK(row.step() == 3);
  CHECK(row.number("b") == 2.5);
  CHECK_FALSE(row.number("c").has_value());
  CHECK_FALSE(row.is_eval());
  row.set("eval/loss", 1);
  CHECK(row.is_eval());
}

TEST_CASE("float32 and float64 read back to the same bits") {
  const RandomStream random(1, RandomPurpose::kInit);
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t bits = random.bits64(i);
    double d;
    std::memcpy(&d, &bits, sizeof d);
    float f;
    std::memcpy(&f, &bits, sizeof f);
    if (!std::isfinite(d) || !std::isfinite(f)) continue;
    MetricsRow row;
    row.set("d", d);
    row.set("f", f);
    const MetricsRow again = MetricsRow::from_json(row.json(), "row");
    CHECK(again.number("d") == d);
    CHECK(static_cast<float>(*again.number("f")) == f);
  }
}

TEST_CASE("what is no finite number is null in JSON and a name in text") {
  MetricsRow row;
  row.set("nan", std::numeric_limits<double>::quiet_NaN());
  row.set("inf", -std::numeric_limits<float>::infinity());
  CHECK(row.json() == "{\"nan\": null, \"inf\": null}");
  CHECK(to_text(*row.find("nan")) == "nan");
  CHECK(to_text(*row.find("inf")) == "-inf");
}

TEST_CASE("a metrics file is read without its half-written end, and names a broken line") {
  const std::string path =
      std::filesystem::temp_directory_path() / ("temper-rows-" + std::to_string(::getpid()));
  CHECK(read_metrics_file(path).empty());
  write_file_atomic(path, "{\"step\": 1}\n{\"step\": 2, \"note\": \"x\"}\n{\"ste");
  const std::vector<MetricsRow> rows = read_metrics_file(path);
  CHECK(rows.size() == 2);
  CHECK(rows.at(1).json() == "{\"step\": 2, \"note\": \"x\"}");
  write_file_atomic(path, "{\"step\": 1}\n[2]\n");
  std::string message;
  try {
    read_metrics_file(path);
  } catch (const DataError& e) {
    message = e.what();
  }
  CHECK(message == path + ":2: expected a JSON object");
  std::filesystem::remove(path);
}

TEST_CASE("numbers as people read them") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(-1234567) == "-1,234,567");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(1234567) == "1.23 MB");
  CHECK(format_bytes(45.6e9) == "45.6 GB");
  CHECK(format_duration(4.25) == "4.2s");
  CHECK(format_duration(0.0421) == "42ms");
  CHECK(format_duration(65) == "1:05");
  CHECK(format_duration(7384) == "2:03:04");
  CHECK(format_brief(0.00012345678) == "0.0001235");
  CHECK(format_fixed(std::nan(""), 2) == "nan");
  CHECK(format_fixed(-0.001, 2) == "0.00");
  CHECK(format_fixed(-0.01, 2) == "-0.01");
  CHECK(format_count(1e300) == "1e+300");
}
