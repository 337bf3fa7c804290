#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/metrics/report/report.h"

namespace temper {

std::string report_record(const Report& report, int64_t planned_steps) {
  Json record = {
      {"title", report.title}, {"planned_steps", planned_steps}, {"config", report.config}};
  if (report.final_step >= 0) record["final_step"] = report.final_step;
  record["summary"] = Json::array();
  for (const auto& [name, value] : report.summary) record["summary"].push_back({name, value});
  record["tables"] = Json::array();
  for (const Report::Table& table : report.tables) {
    record["tables"].push_back(
        {{"title", table.title}, {"header", table.header}, {"rows", table.rows}});
    if (table.pictures) record["tables"].back()["pictures"] = *table.pictures;
  }
  record["metrics"] = Json::array();
  for (const MetricInfo& info : report.metrics)
    record["metrics"].push_back({{"name", info.name},
                                 {"unit", info.unit},
                                 {"group", info.group},
                                 {"help", info.help},
                                 {"console", info.console},
                                 {"label", info.label}});
  return dump_json(record) + "\n";
}

ReportRecord read_report_record(const std::string& text, const std::string& where) {
  ReportRecord record;
  Report& report = record.report;
  try {
    const Json read = parse_json(text, where);
    report.title = read.at("title").get<std::string>();
    report.config = read.at("config").get<std::string>();
    record.planned_steps = read.at("planned_steps").get<int64_t>();
    report.final_step = read.value("final_step", int64_t{-1});
    for (const Json& pair : read.at("summary"))
      report.summary.emplace_back(pair.at(0).get<std::string>(), pair.at(1).get<std::string>());
    for (const Json& table : read.at("tables")) {
      report.tables.push_back({table.at("title").get<std::string>(),
                               table.at("header").get<std::vector<std::string>>(),
                               table.at("rows").get<std::vector<std::vector<std::string>>>()});
      if (table.contains("pictures"))
        report.tables.back().pictures = table["pictures"].get<size_t>();
    }
    for (const Json& info : read.at("metrics"))
      report.metrics.push_back({.name = info.at("name").get<std::string>(),
                                .unit = info.at("unit").get<std::string>(),
                                .group = info.at("group").get<std::string>(),
                                .help = info.at("help").get<std::string>(),
                                .console = info.at("console").get<bool>(),
                                .label = info.at("label").get<std::string>()});
  } catch (const Json::exception&) {
    throw DataError(where + ": not what a run writes there");
  }
  return record;
}

}  // namespace temper
