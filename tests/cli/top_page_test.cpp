#include "temper/cli/top_page.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

struct Run {
  fs::path path = fs::temp_directory_path() / str("temper-top-", ::getpid());
  Run() { fs::create_directories(path / "rollouts"); }
  ~Run() { fs::remove_all(path); }
};

http::RequestHead head_of(const std::string& path, const std::string& query = "") {
  http::RequestHead head;
  head.method = "GET";
  head.path = path;
  head.query = query;
  head.headers = {{"host", "127.0.0.1:8000"}};
  return head;
}

}  // namespace

TEST_CASE("the page's data: whole lines of metrics from a byte on, rollouts as JSON") {
  const Run run;
  const std::string whole = "{\"step\": 1}\n{\"step\": 2}\n";
  write_file_atomic((run.path / "metrics.jsonl").string(), whole + "{\"st");
  write_file_atomic((run.path / "rollouts/step-3.jsonl").string(),
                    R"({"group": 0, "reward": 1, "text": "<script>", "advantage": [1, 2]})"
                    "\nno\n");
  write_file_atomic((run.path / "rollouts/step-x.jsonl").string(), "");
  fs::create_symlink(run.path / "metrics.jsonl", run.path / "rollouts/step-5.jsonl");
  cli::TopPage page(run.path.string(), 7);
  const auto ask = [&](const std::string& path, const std::string& query) {
    const http::Answer answer = *page.admit(head_of(path, query)).answer;
    CHECK(answer.status == 200);
    return parse_json(answer.body, "answer");
  };
  Json got = ask("/metrics", "from=0");
  CHECK(got["lines"] == Json{"{\"step\": 1}", "{\"step\": 2}"});
  CHECK(got["next"] == whole.size());
  CHECK(got["planned"] == 7);
  CHECK(got["running"] == false);
  got = ask("/metrics", str("from=", whole.size()));
  CHECK(got["lines"].empty());
  CHECK(got["next"] == whole.size());
  CHECK(ask("/metrics", "from=1000")["lines"].size() == 2);  // the run was cut: from its beginning
  CHECK(ask("/rollouts", "")["steps"] == Json{5, 3});
  CHECK(ask("/rollouts", "step=3")["rows"] ==
        Json::array({{{"group", 0}, {"reward", 1}, {"text", "<script>"}}}));
  CHECK(ask("/rollouts", "step=5")["rows"].empty());  // a link leads elsewhere
}

TEST_CASE("the page answers nothing else, and no other site's pages") {
  const Run run;
  cli::TopPage page(run.path.string(), 0);
  const auto status = [&](http::RequestHead head) { return page.admit(head).answer->status; };
  CHECK(status(head_of("/")) == 200);
  CHECK(status(head_of("/config.yaml")) == 404);
  CHECK(status(head_of("/rollouts", "step=../../x")) == 404);
  CHECK(status(head_of("/metrics", "from=-1")) == 404);
  http::RequestHead head = head_of("/");
  head.method = "POST";
  CHECK(status(head) == 405);
  head = head_of("/");
  head.headers = {{"host", "evil.example"}};
  CHECK(status(head) == 421);
  // The command has no flag that admits names.
  CHECK(page.admit(head).answer->body.find("allowed") == std::string::npos);
  head = head_of("/metrics", "from=0");
  head.headers.emplace_back("origin", "https://evil.example");
  CHECK(status(head) == 403);
  const http::Answer answer = *page.admit(head_of("/")).answer;
  CHECK(answer.type.starts_with("text/html"));
  CHECK(answer.body.find("innerHTML") == std::string::npos);
  CHECK(answer.body.find("src=") == std::string::npos);
  bool has_policy = false;
  for (const auto& [name, value] : answer.headers)
    has_policy |= name == "Content-Security-Policy" && value.starts_with("default-src 'none'");
  CHECK(has_policy);
}
