#include "temper/metrics/trace.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "temper/base/json.h"

using namespace temper;

TEST_CASE("spans of all threads are written as trace events that nest") {
  const std::string path =
      std::filesystem::temp_directory_path() / ("temper-trace-" + std::to_string(::getpid()));
  {
    const trace::Span before("before");
  }
  trace::count("before", 1);
  trace::start();
  trace::count("sent", 3);
  trace::count("sent", 4);
  {
    const trace::Span outer("outer");
    const trace::Span inner("inner", 12);
    std::thread([] {
      trace::name_thread("loader \"1\"");
      const trace::Span load("load");
    }).join();
  }
  trace::write(path, 3);
  {
    const trace::Span after("after");
  }

  const Json json = read_json_file(path);
  std::map<std::string, Json> spans;
  Json loader_id;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") spans[event.at("name")] = event;
    if (event.at("name") == "thread_name" && event.at("args").at("name") == "loader \"1\"")
      loader_id = event.at("tid");
  }
  CHECK(spans.size() == 3);
  CHECK(spans.at("load").at("tid") == loader_id);
  CHECK(spans.at("outer").at("tid") == spans.at("inner").at("tid"));
  CHECK(spans.at("outer").at("tid") != loader_id);
  const auto begin = [&](const char* name) { return spans.at(name).at("ts").get<double>(); };
  const auto end = [&](const char* name) {
    return begin(name) + spans.at(name).at("dur").get<double>();
  };
  CHECK(begin("outer") >= 0);
  CHECK(begin("outer") <= begin("inner"));
  CHECK(begin("inner") <= begin("load"));
  CHECK(end("load") <= end("inner") + 0.001);  // microseconds, rounded to a nanosecond
  CHECK(end("inner") <= end("outer") + 0.001);
  CHECK(spans.at("inner").at("args").at("number") == 12);
  CHECK_FALSE(spans.at("outer").contains("args"));
  for (const Json& event : json.at("traceEvents")) CHECK(event.at("pid") == 3);
  CHECK(json.at("otherData").at("dropped_spans") == 0);
  CHECK(json.at("otherData").at("counts") == Json{{"sent", 7}});

  trace::start();
  trace::write(path, 3);
  const Json empty = read_json_file(path);
  CHECK(empty.at("otherData").at("counts") == Json::object());
  for (const Json& event : empty.at("traceEvents")) CHECK(event.at("ph") == "M");
  std::filesystem::remove(path);
}
