#include "temper/metrics/report.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "temper/base/file.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report_chart.h"

using namespace temper;

namespace {

std::vector<MetricsRow> sample_rows(int64_t steps) {
  std::vector<MetricsRow> rows;
  for (int64_t step = 1; step <= steps; ++step) {
    MetricsRow row(step);
    row.set("loss", static_cast<float>(1 + 2 * std::exp(-0.02 * static_cast<double>(step)) +
                                       0.05 * std::sin(1.7 * static_cast<double>(step))));
    row.set("grad_norm", 0.4 + 0.1 * std::sin(0.9 * static_cast<double>(step)));
    row.set("learning_rate", 2e-5 * (1 - static_cast<double>(step) / static_cast<double>(steps)));
    row.set("tokens", 4096);
    row.set("step_seconds", 0.5);
    row.set("tokens_per_second", 8000 + 300 * std::cos(static_cast<double>(step)));
    row.set("peak_memory_bytes", int64_t{1'300'000'000});
    rows.push_back(row);
    if (step % 20 == 0) {
      MetricsRow eval(step);
      eval.set("eval/loss", 1.1 + 2 * std::exp(-0.02 * static_cast<double>(step)));
      rows.push_back(eval);
    }
  }
  return rows;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Report sample_report() {
  Report report;
  report.title = "sft of tiny";
  report.rows = sample_rows(200);
  report.summary = {
      {"device", "cpu, 2 threads"}, {"rows", "1,600"}, {"trained parameters", "596,049,920"}};
  report.config = "output_dir: runs/x\nseed: 0\n";
  report.tables = {{"Samples",
                    {"prompt", "completion", "reward"},
                    {{"2 + 2 =", "4, of course.\nAlways.", "1"}, {"3 x 7 =", "22", "0"}}}};
  report.accuracy = Report::Accuracy{"gsm8k", 0.125, 0.5, 1319};
  return report;
}

}  // namespace

// TEMPER_REPORT=/tmp/report.html test_metrics -tc="*page*" keeps the page to look at.
TEST_CASE("the page holds the run's figures, curves, tables and config") {
  const std::string page = render_report(sample_report());
  if (const char* path = std::getenv("TEMPER_REPORT")) write_file_atomic(path, page);
  CHECK(has(page, "<title>sft of tiny</title>"));
  CHECK(has(page, "<span>tokens</span><b>819,200</b>"));
  CHECK(has(page, "<span>time in steps</span><b>1:40</b>"));
  CHECK(has(page, "<span>tokens per second</span><b>8,192</b>"));
  CHECK(has(page, "<span>peak memory</span><b>1.30 GB</b>"));
  CHECK(has(page, "<span>best eval loss</span><b>1.137</b>"));
  CHECK(has(page, "<dt>device</dt><dd>cpu, 2 threads</dd>"));
  CHECK(has(page, "gsm8k, 1,319 examples"));
  CHECK(has(page, "<b>12.5 %</b>"));
  CHECK(has(page, "width:50.00%"));
  CHECK(has(page, "<td>4, of course.\nAlways.</td>"));
  CHECK(has(page, "<pre>output_dir: runs/x\nseed: 0\n</pre>"));
  CHECK(count(page, "<svg ") ==
        5);  // loss, rate, norm, speed, memory; nothing of reinforcement learning
  CHECK(count(page, "class=\"line ") == 6);  // the loss has a curve of the evaluation
}

TEST_CASE("the page loads nothing and says nothing it was not given") {
  const std::string page = render_report(sample_report());
  for (const char* part : {"src=", "href=", "@import", "url(", "fetch("})
    CHECK_FALSE(has(page, part));
  const std::string empty = render_report({});
  for (const char* part : {"<svg ", "<table", "Accuracy", "Config</h2>", "<dl"})
    CHECK_FALSE(has(empty, part));
}

TEST_CASE("whatever comes from outside is escaped") {
  const std::string evil = "<script>alert('\"&</script>";
  const std::string escaped = "&lt;script&gt;alert(&#39;&quot;&amp;&lt;/script&gt;";
  CHECK(escape_html(evil) == escaped);
  CHECK(escape_html(std::string("a\0\x01z", 4)) == "az");
  Report report;
  report.title = report.config = evil;
  report.summary = {{evil, evil}};
  report.tables = {{evil, {evil}, {{evil}}}};
  report.accuracy = Report::Accuracy{evil, 0, std::nan(""), 0};
  const std::string page = render_report(report);
  CHECK(count(page, escaped) == 9);
  CHECK_FALSE(has(page, "<script>alert"));
}

TEST_CASE("a curve's lowest and highest points stand at the axis' ends they belong to") {
  std::vector<MetricsRow> rows;
  for (const auto& [step, value] :
       std::vector<std::pair<int64_t, double>>{{1, 0}, {2, 4}, {3, 2}}) {
    rows.emplace_back(step);
    rows.back().set("loss", value);
  }
  const std::string chart = render_chart({"Loss", {"loss"}, format_brief}, rows);
  // The plot is 480 - 62 - 12 wide and 230 - 10 - 28 high.
  CHECK(has(chart, "d=\"M62.0 202.0L265.0 10.0L468.0 106.0\""));
  CHECK(has(chart, "[62.0,202.0,&quot;1&quot;,&quot;0&quot;]"));
}

TEST_CASE("a long curve keeps its spikes, and values that are not finite are left out") {
  std::vector<MetricsRow> rows;
  for (int64_t step = 1; step <= 100000; ++step) {
    rows.emplace_back(step);
    rows.back().set("loss", step == 77777 ? 9.75
                            : step == 5   ? std::numeric_limits<double>::infinity()
                                          : 1.0);
  }
  const std::string chart = render_chart({"Loss", {"loss"}, format_brief}, rows);
  CHECK(chart.size() < 60000);
  CHECK(count(chart, "&quot;9.75&quot;") == 1);
  CHECK_FALSE(has(chart, "inf"));
  CHECK_FALSE(has(chart, "nan"));
}

TEST_CASE("flat, tiny and huge curves have finite coordinates") {
  for (const double value : {0.0, 1.0, -1e-300, 1e300, 5e-324}) {
    std::vector<MetricsRow> rows(2);
    for (int64_t step = 0; step < 2; ++step) {
      rows[static_cast<size_t>(step)].set("step", step);
      rows[static_cast<size_t>(step)].set("loss", value);
    }
    const std::string chart = render_chart({"Loss", {"loss"}, format_brief}, rows);
    CHECK(has(chart, "class=\"line s0\""));
    CHECK_FALSE(has(chart, "nan"));
    CHECK_FALSE(has(chart, "inf"));
  }
  CHECK(render_chart({"Loss", {"loss"}, format_brief}, std::vector<MetricsRow>(1)).empty());
}
