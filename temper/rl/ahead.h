// Asynchronous rollout (rl.max_staleness): batches are sampled on a separate thread, by an earlier
// version of the policy, while it trains on earlier batches.
//
// Which version samples a batch depends only on the plan, never on timing: sampling of a batch
// starts as soon as at most max_staleness updates remain before it is used. With rollout.update:
// finish all of it is sampled with the weights of that moment: with one update per batch, batch n
// (from 0) by version max(0, n - max_staleness). With rollout.update: continue its completions
// continue with the weights after each later update (in-flight weight updates: Piche et al.,
// PipelineRL, arXiv 2509.19128), an equal share of max_new_tokens by each version; keys and values
// of the tokens so far are recomputed. Results are bit-identical for any timing.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "temper/rl/config.h"
#include "temper/rl/sampled.h"
#include "temper/rl/source.h"
#include "temper/train/messages.h"

namespace temper::rl {

// Messages of another thread, kept until the trainer's passes them on.
class KeptMessages : public train::Messages {
 public:
  explicit KeptMessages(train::Messages& to) : to_(to) {}
  void warn_once(const std::string& what, const std::string& message) override;
  void note(const std::string& text) override;
  void pass_on();

 private:
  struct Message {
    bool warning;
    std::string what, text;
  };
  train::Messages& to_;
  std::mutex mutex_;
  std::vector<Message> messages_;
};

class AheadSource : public RolloutSource {
 public:
  // `inner` samples; its collectives, if any, use a separate group (dist::Group::another)
  // and its messages go to `messages`. vocabulary: of the policy.
  AheadSource(const RlConfig& config, std::unique_ptr<SampledSource> inner,
              std::unique_ptr<KeptMessages> messages, int64_t vocabulary);
  ~AheadSource() override;

  int64_t planned_batches() const override { return inner_->planned_batches(); }
  RolloutBatch next(int64_t policy_version) override;
  void look_ahead(int64_t policy_version, int64_t updates_left) override;
  void before_pass() override { inner_->share_processors(true); }
  bool exact() const override { return false; }
  bool samples() const override { return true; }
  void describe(MetricsRow& row) const override;
  bool evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) override;
  Json state() const override;
  void restore(const Json& state, const std::string& where) override;
  std::function<void(train::TaskState&)> begun() const override;
  void restore_begun(const train::TaskState& state, const std::string& where) override;
  std::vector<std::pair<std::string, std::string>> summary() const override;

 private:
  // A batch from when it is begun.
  struct Batch {
    // Of the trainer's thread.
    int64_t planned = 0;  // tokens of a completion that were asked for so far
    // Of the thread that samples.
    std::unique_ptr<PartialBatch> partial;
    // Guarded by mutex_.
    int64_t sampled = 0;                        // of `planned`
    std::map<int64_t, std::string> unfinished;  // its lines, by tokens sampled
    std::exception_ptr failure;
    RolloutBatch rollouts;
    Json source;       // inner's state behind it
    MetricsRow about;  // what inner says of it
  };
  using BatchPointer = std::shared_ptr<Batch>;
  // An evaluation, with the arguments of evaluate(). The other members are guarded by mutex_.
  struct Evaluation {
    train::EvaluationSums& sums;
    const std::function<bool()>& stop;
    bool done = false, any = false;
    std::exception_ptr failure{};
  };
  // What one version of the policy samples; or an evaluation by the current policy.
  struct Job {
    int64_t version = 0;
    std::vector<std::pair<BatchPointer, int64_t>> parts{};  // batches, and up to which token
    Evaluation* evaluation = nullptr;
  };
  // A batch as it was at some time.
  struct Begun {
    BatchPointer batch;
    int64_t planned;
  };

  int64_t longest() const { return config_.rollout.max_new_tokens; }
  // Adds to the job what the batch shall have sampled after so many of its stages are left.
  void plan(Job& job, const BatchPointer& batch, int64_t stages_left) const;
  // Called on all ranks in the same order, as the sampling thread runs collectives in that order.
  void submit(Job job);
  void run(const Job& job);
  void run_parts(const Job& job);
  void fail(const Job& job);
  // Waits until `done`, which is called with mutex_ held, is true, and passes on messages
  // meanwhile: sampling may wait for servers.
  void attend(const std::function<bool()>& done) const;
  void attend(const Batch& batch, int64_t tokens) const;
  void work();
  void add_begun(const std::vector<Begun>& batches, train::TaskState& state) const;

  const RlConfig& config_;
  std::unique_ptr<KeptMessages> messages_;
  const int64_t vocabulary_;
  std::unique_ptr<SampledSource> inner_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<BatchPointer> begun_;  // in order; of the trainer's thread
  std::deque<Job> jobs_;
  std::exception_ptr failure_;  // of the first job that failed; those behind it fail with it
  bool ending_ = false;
  int64_t asked_ = -1;  // the last version that goes on with what was begun
  Json behind_;         // inner's state behind the batch that next() gave last
  MetricsRow about_;    // that batch
  std::thread thread_;  // last: it uses the others
};

}  // namespace temper::rl
