#include "temper/metrics/report/report.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <tuple>

#include "temper/base/file.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report/chart_axis.h"
#include "temper/metrics/report/report_chart.h"

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
  report.metrics = {{"loss", "", "Loss", "what is minimized", "", true},
                    {"grad_norm", "", "Gradient norm", "before clipping"},
                    {"learning_rate", "", "Learning rate", "of the step"},
                    {"tokens", "tokens", "", "of the step"},
                    {"step_seconds", "s", "", "of the step"},
                    {"tokens_per_second", "tokens/s", "Speed", "of the step"},
                    {"peak_memory_bytes", "bytes", "Memory", "of the process"}};
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
  CHECK(has(page, "<span>final eval/loss</span><b>1.137</b>"));
  CHECK(has(page, "<dt>device</dt><dd>cpu, 2 threads</dd>"));
  CHECK(has(page, "<td>4, of course.\nAlways.</td>"));
  CHECK(has(page, "<pre>output_dir: runs/x\nseed: 0\n</pre>"));
  // Loss, rate, norm, speed; none of what is declared without a group or never changes.
  CHECK(count(page, "<svg ") == 4);
  CHECK(has(page, "<td>peak_memory_bytes</td><td>1.30 GB</td>"));
  CHECK(count(page, "class=\"line ") == 5);  // the loss has a curve of the evaluation
}

TEST_CASE("the figures are those of the step whose weights the run kept") {
  Report report{"sft of tiny"};
  report.metrics = {{"loss", "", "loss", "what is minimized", "", true}};
  for (const auto& [step, loss, evaluated] :
       std::vector<std::tuple<int64_t, double, double>>{{1, 3, 2}, {2, 2, 1.5}, {3, 1, 1.75}}) {
    report.rows.emplace_back(step);
    report.rows.back().set("loss", loss);
    report.rows.emplace_back(step);
    report.rows.back().set("eval/loss", evaluated);
  }
  CHECK(has(render_report(report), "<span>final eval/loss</span><b>1.750</b>"));
  report.final_step = 2;
  const Report again = read_report_record(report_record(report, 3), "record").report;
  CHECK(again.final_step == 2);
  const std::string page = render_report(report);
  CHECK(has(page, "<span>final eval/loss</span><b>1.500</b>"));
  CHECK(has(page, "<span>final loss</span><b>2.000</b>"));
}

TEST_CASE("losses that fall by orders of magnitude are drawn on a logarithmic axis") {
  const auto chart = [](const std::string& metric, std::vector<double> values) {
    std::vector<MetricsRow> rows;
    for (size_t i = 0; i < values.size(); ++i) {
      rows.emplace_back(static_cast<int64_t>(i) + 1);
      rows.back().set(metric, values[i]);
    }
    return render_chart({metric, {metric}}, rows);
  };
  // From 0.01 to 10: each factor of ten is a third of the height, from 202 up to 10.
  const std::string falling = chart("loss", {10, 1, 0.1, 0.01});
  CHECK(has(falling, "loss (logarithmic)</span>"));
  CHECK(has(falling, "d=\"M62.0 10.0L197.3 74.0L332.7 138.0L468.0 202.0\""));
  for (const char* tick : {">0.01000<", ">0.1000<", ">1.000<", ">10.00<"})
    CHECK(has(falling, tick));
  for (const std::string& other : {chart("loss", {10, 1, 1}), chart("loss", {10, 0.1, 0}),
                                   chart("grad_norm", {10, 1, 0.1, 0.01})})
    CHECK_FALSE(has(other, "logarithmic"));
}

TEST_CASE("the page loads nothing and says nothing it was not given") {
  const std::string page = render_report(sample_report());
  for (const char* part : {"src=", "href=", "@import", "url(", "fetch("})
    CHECK_FALSE(has(page, part));
  const std::string empty = render_report({});
  for (const char* part : {"<svg ", "<table", "Config</h2>", "<dl"}) CHECK_FALSE(has(empty, part));
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
  report.rows = {MetricsRow(1), MetricsRow(2)};
  report.rows[0].set(evil, 0.5);
  report.rows[1].set(evil, 1.5);
  for (MetricsRow& row : report.rows) row.set(evil + " flat", 0.5);
  const std::string page = render_report(report);
  CHECK(count(page, escaped) == 12);
  CHECK_FALSE(has(page, "<script>alert"));
}

TEST_CASE("a curve's lowest and highest points stand at the axis' ends they belong to") {
  std::vector<MetricsRow> rows;
  for (const auto& [step, value] :
       std::vector<std::pair<int64_t, double>>{{1, 0}, {2, 4}, {3, 2}}) {
    rows.emplace_back(step);
    rows.back().set("loss", value);
  }
  const std::string chart = render_chart({"Loss", {"loss"}}, rows);
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
  const std::string chart = render_chart({"Loss", {"loss"}}, rows);
  CHECK(chart.size() < 60000);
  CHECK(count(chart, "&quot;9.750&quot;") == 1);
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
    const std::string chart = render_chart({"Loss", {"loss"}}, rows);
    CHECK(has(chart, "class=\"line s0\""));
    CHECK_FALSE(has(chart, "nan"));
    CHECK_FALSE(has(chart, "inf"));
  }
  CHECK(render_chart({"Loss", {"loss"}}, std::vector<MetricsRow>(1)).empty());
}

TEST_CASE("metrics are drawn where they are declared, others on charts of their own") {
  Report report;
  report.metrics = {{"margin", "", "Margin", "", "", true},
                    {"wait_seconds", "s", "Seconds", ""},
                    {"rewards/*", "", "Rewards", ""},
                    {"work_seconds", "s", "Seconds", ""},
                    {"hidden", "", "", ""}};
  // No metric equals another.
  const auto value_of = [](std::string_view name, int64_t step) {
    return static_cast<double>(step) + (name.ends_with("margin") && step == 3
                                            ? 0
                                            : 1e-3 * std::hash<std::string_view>{}(name) / 1.8e19);
  };
  for (int64_t step = 1; step <= 3; ++step) {
    report.rows.emplace_back(step);
    for (const char* name : {"work_seconds", "wait_seconds", "margin", "hidden", "rewards/b",
                             "rewards/a", "alone", "mine/x", "mine/y"})
      report.rows.back().set(name, value_of(name, step));
    report.rows.emplace_back(step);
    for (const char* name : {"eval/margin", "eval/set/margin", "eval/set/rewards/a", "eval/hidden",
                             "eval/alone", "eval/other"})
      report.rows.back().set(name, value_of(name, step));
  }
  const std::string page = render_report(report);
  std::string charts;
  for (size_t at = 0; (at = page.find_first_of("<d", at)) != std::string::npos; ++at)
    for (const std::string begin : {"<figcaption><span>", "data-name=\""})
      if (page.compare(at, begin.size(), begin) == 0) {
        const size_t from = at + begin.size();
        charts += (begin[0] == '<' ? "\n" : " ") +
                  page.substr(from, page.find_first_of("<\"", from) - from);
      }
  CHECK(charts ==
        "\nMargin margin eval/margin eval/set/margin"
        "\nSeconds wait_seconds work_seconds"
        "\nRewards rewards/b rewards/a eval/set/rewards/a"
        "\nalone alone eval/alone"
        "\nmine mine/x mine/y"
        "\nother eval/other");
  CHECK(has(page, "<span>final margin</span><b>3.000</b>"));
  CHECK(has(page, "<span>final eval/margin</span><b>3.000</b>"));
}

TEST_CASE("what never changes or repeats another metric stands in a table") {
  Report report;
  for (int64_t step = 1; step <= 3; ++step) {
    report.rows.emplace_back(step);
    report.rows.back().set("reward_mean", 0.25 * static_cast<double>(step));
    report.rows.back().set("rewards/exact", 0.25 * static_cast<double>(step));
    report.rows.back().set("truncated_fraction", 0.5);
    report.rows.back().set("kl", step == 1 ? 2.5 : std::nan(""));
    report.rows.back().set("nothing", std::nan(""));
  }
  const std::string page = render_report(report);
  CHECK(count(page, "<svg ") == 1);
  CHECK(has(page, "<td>rewards/exact</td><td>as reward_mean</td>"));
  CHECK(has(page, "<td>truncated_fraction</td><td>0.5000</td>"));
  CHECK(has(page, "<td>kl</td><td>2.500 at one step, else not finite</td>"));
  CHECK(has(page, "<td>nothing</td><td>never a finite number</td>"));
  report.rows[1].set("rewards/exact", 0.0);
  report.rows[2].set("truncated_fraction", 0.25);
  CHECK(count(render_report(report), "<svg ") == 3);
}

TEST_CASE("a long cell is folded between two characters") {
  Report report;
  std::string text(239, 'a');
  for (int i = 0; i < 200; ++i) text += "\u00e9";
  report.tables = {{"Samples", {"completion"}, {{"short"}, {text}}}};
  const std::string page = render_report(report);
  CHECK(count(page, "<details>") == 1);
  CHECK(has(page, "<td>short</td>"));
  CHECK(has(page, std::string(239, 'a') + " ...</summary>\u00e9"));
}

TEST_CASE("every curve of a chart has a colour of its own") {
  ChartSpec spec{"Many", {}, ""};
  std::vector<MetricsRow> rows{MetricsRow(1), MetricsRow(2)};
  for (int i = 0; i < 9; ++i) {
    spec.metrics.push_back("m" + std::to_string(i));
    for (MetricsRow& row : rows) row.set(spec.metrics.back(), row.step() * i);
  }
  const std::string chart = render_chart(spec, rows);
  for (int i = 0; i < 8; ++i) {
    const std::string name = "s" + std::to_string(i);
    CHECK(count(chart, "class=\"line " + name + "\"") == 1);
    CHECK(count(chart, "class=\"key " + name + "\"") == 1);
    CHECK(has(kChartStyle, "." + name + " { --c: var(--" + name + "); }"));
    CHECK(count(kChartStyle, "--" + name + ": #") == 2);  // light and dark
  }
  CHECK(count(chart, "class=\"line s0 again\"") == 1);
  CHECK(has(kChartStyle, "stroke: var(--c)"));
}

TEST_CASE("an axis holds its values between ticks whose texts all differ") {
  const auto texts = [](const Axis& axis) {
    std::string all;
    for (const Axis::Tick& tick : axis.ticks) all += (all.empty() ? "" : " ") + tick.text;
    return all;
  };
  CHECK(texts(value_axis(0, 0, "")) == "0 0.5 1.0");
  CHECK(texts(value_axis(0, 4, "")) == "0 1 2 3 4");
  CHECK(texts(value_axis(0.5, 0.5, "")) == "0.45 0.50 0.55");
  CHECK(texts(value_axis(2.0001, 2.0009, "")) == "2.0000 2.0002 2.0004 2.0006 2.0008 2.0010");
  CHECK(texts(value_axis(0, 2e-5, "")) == "0 5e-6 10e-6 15e-6 20e-6");
  CHECK(texts(value_axis(7999.5, 8000.5, "tokens/s")) == "7999.5 8000.0 8000.5");
  CHECK(texts(value_axis(1.301e9, 1.304e9, "bytes")) == "1.301 GB 1.302 GB 1.303 GB 1.304 GB");
  CHECK(texts(value_axis(0.2, 0.5, "s")) == "0.2s 0.3s 0.4s 0.5s");
  CHECK(texts(value_axis(60, 600, "s")) == "0 5 min 10 min");
  CHECK(texts(step_axis(1, 1)) == "1 2");
  CHECK(texts(step_axis(1, 2)) == "1 2");
  CHECK(texts(step_axis(1, 1000)) == "1 500 1,000");
  for (const char* unit : {"", "s", "bytes", "tokens", "tokens/s", "nats"})
    for (const double base : {0.0, 5e-324, 1e-9, 0.003, 0.7, 1.0, 59.0, 999.0, 12345.0, 1e7, 1e300})
      for (const double share : {0.0, 1e-13, 1e-5, 1e-3, 0.1, 1.0, 1000.0})
        for (const double sign : {1.0, -1.0}) {
          const double a = sign * base, b = sign * base * (1 + share);
          // Hours and terabytes have no larger prefix.
          const bool plain = *unit == '\0' || *unit == 'n';
          if (!std::isfinite(b) || (base > 1e8 && !plain)) continue;
          CAPTURE(unit);
          CAPTURE(a);
          CAPTURE(b);
          const Axis axis = value_axis(std::min(a, b), std::max(a, b), unit);
          const double size = std::max(std::abs(a), std::abs(b));
          const double rounding = 1e-9 * std::max(size, axis.high - axis.low);
          CHECK(axis.low <= std::min(a, b) + rounding);
          CHECK(axis.high >= std::max(a, b) - rounding);
          CHECK(axis.ticks.size() >= 2);
          CHECK(axis.ticks.size() <= 12);
          std::set<std::string> different;
          for (const Axis::Tick& tick : axis.ticks) {
            different.insert(tick.text);
            CHECK(tick.text.size() <= 13);  // what fits left of the plot, or nearly
          }
          CHECK(different.size() == axis.ticks.size());
        }
}

TEST_CASE("a column of pictures shows them, and what is no picture as text") {
  Report report;
  report.tables = {
      {"Samples",
       {"text", "images"},
       {{"data:image/png;base64,AA==", "data:image/png;base64,AB+/ data:image/png;base64,CD=="},
        {"b", "data:image/png;base64,\"><script>"}}}};
  report.tables[0].pictures = 1;
  const Report again = read_report_record(report_record(report, 1), "record").report;
  for (const Report& shown : {report, again}) {
    const std::string page = render_report(shown);
    CHECK(has(page, "<img alt=\"\" src=\"data:image/png;base64,AB+/\">"));
    CHECK(has(page, "<img alt=\"\" src=\"data:image/png;base64,CD==\">"));
    CHECK(!has(page, "src=\"data:image/png;base64,AA=="));
    CHECK(!has(page, "base64,\"><script>"));
    CHECK(has(page, "&gt;&lt;script&gt;"));
  }
}
