// temper fetch: a model or data set from a hub into the local cache.
#include <cstdlib>
#include <iostream>
#include <optional>

#include "temper/cli/parts/options.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/verbs.h"
#include "temper/http/hub_fetch.h"

namespace temper::cli {
namespace {

std::string variable_or(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value && *value ? value : otherwise;
}

class Fetch : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Downloads a model or data set from a hub into the local Hugging Face cache, where "
        "model.path "
        "and data.train find it by its id, and prints the snapshot's directory. Sizes and digests "
        "are "
        "checked; the same command goes on where it was cut off. HF_ENDPOINT names another hub, "
        "HF_TOKEN is sent to that host alone.\n"
        "examples:\n"
        "  temper fetch Qwen/Qwen2.5-0.5B-Instruct\n"
        "  temper fetch openai/gsm8k --dataset");
    f.add("ID", what_.id, "ORG/NAME", required());
    f.add("--dataset", dataset_, "it is a data set");
    f.add("--revision", what_.revision, "branch, tag or commit");
    f.add("--include", what_.include, "only files that match one of these patterns, as *.json")
        .several = true;
  }

  int run() override {
    if (dataset_) what_.kind = HubKind::kDataset;
    what_.endpoint = variable_or("HF_ENDPOINT", what_.endpoint);
    what_.token = variable_or("HF_TOKEN", "");
    std::optional<Progress> progress;
    what_.begun = [&](int64_t files) { progress.emplace("fetched", files, "bytes"); };
    what_.progress = [&](int64_t files, int64_t bytes) { progress->advance(files, bytes); };
    const std::string snapshot = http::fetch_from_hub(what_);
    progress.reset();
    std::cout << snapshot << std::endl;
    return 0;
  }

 private:
  http::HubFetch what_;
  bool dataset_ = false;
};

}  // namespace

std::unique_ptr<Command> fetch_command() { return std::make_unique<Fetch>(); }

}  // namespace temper::cli
