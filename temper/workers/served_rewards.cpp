#include "temper/workers/served_rewards.h"

#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/work_queue.h"
#include "temper/models/device.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/train/roles/policy.h"
#include "temper/workers/rank_engine.h"
#include "temper/workers/rank_server.h"
#include "temper/workers/wire.h"

namespace temper::workers {

using generate::remote::NoServer;
using generate::remote::ServerPool;

namespace {

// Of a path: a label may have any character, and one in train.eval_rewards be that of another one.
std::string path_name(const std::string& label, bool evaluates) {
  std::string hex = evaluates ? "evaluation-" : "";
  for (const unsigned char c : label)
    for (const int digit : {c >> 4, c & 15}) hex += "0123456789abcdef"[digit];
  return hex;
}

class ServedReward : public rewards::Reward {
 public:
  ServedReward(rewards::RewardSection section, bool evaluates, std::shared_ptr<ServerPool> pool)
      : section_(std::move(section)),
        path_(str(kJudge, "/", path_name(section_.label(), evaluates))),
        pool_(std::move(pool)) {
    // Reads no weights, and knows what a judge reads.
    if (section_.judge.model) local_ = rewards::make_reward(section_);
  }

  std::vector<rewards::Verdict> judge(std::span<const rewards::Sample> samples) override {
    if (!alone_) {
      try {
        return parse_verdicts(pool_->post(path_, samples_text(samples), turn_++), samples.size());
      } catch (const NoServer& e) {
        alone_ = true;
        if (heard_) heard_(str(e.what(), "; this process judges from now on"), false);
      }
    }
    if (!local_) local_ = rewards::make_reward(section_);
    return local_->judge(samples);
  }
  void tell_failures(Heard heard) override { heard_ = std::move(heard); }
  std::vector<std::string> required_fields() const override {
    return local_ ? local_->required_fields() : std::vector<std::string>();
  }
  bool needs_text() const override { return local_ && local_->needs_text(); }

 private:
  const rewards::RewardSection section_;
  const std::string path_;
  const std::shared_ptr<ServerPool> pool_;
  std::unique_ptr<rewards::Reward> local_;  // null until it is needed
  Heard heard_;
  bool alone_ = false;
  size_t turn_ = 0;
};

}  // namespace

rewards::RewardSet::Make served_rewards(RoleRanks& role_ranks, bool evaluates) {
  auto pool = std::make_shared<ServerPool>(role_ranks.judging(), rank_protocol());
  role_ranks.watch(pool, role_ranks.roles().reward);
  return
      [pool, evaluates](const rewards::RewardSection& section) -> std::unique_ptr<rewards::Reward> {
        if (!section.is_model()) return rewards::make_reward(section);
        return std::make_unique<ServedReward>(section, evaluates, pool);
      };
}

train::RunOutcome serve_rewards(train::RunConfig& config,
                                std::span<const rewards::RewardSection> rewards,
                                dist::World& world) {
  RankServer server(world, config.training_ranks(world.size()).size());
  models::use_device(config.device_choice());
  std::map<std::string, std::unique_ptr<rewards::Reward>> models;
  const auto add = [&](std::span<const rewards::RewardSection> sections, bool evaluates) {
    for (const rewards::RewardSection& section : sections)
      if (section.is_model())
        models[path_name(section.label(), evaluates)] = rewards::make_reward(section);
  };
  add(rewards, false);
  add(config.train.eval_rewards, true);
  train::find_model(config);
  const auto tokenizer = Tokenizer::load_directory(config.model.path);
  const auto images = train::images_of(config, tokenizer.get());
  WorkQueue queue;  // one thread uses the models
  server.add(kJudge, [&](const std::string& name, const std::string& body) {
    const auto model = models.find(name);
    check<DataError>(model != models.end(), "no reward is called ", name);
    std::string verdicts;
    queue
        .run([&] {
          const std::vector<rewards::Sample> samples = parse_samples(body, images.get());
          verdicts = verdicts_text(model->second->judge(samples));
        })
        .get();
    return verdicts;
  });
  return server.serve([](const std::function<bool()>& stop) {
    while (!stop()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
}

}  // namespace temper::workers
