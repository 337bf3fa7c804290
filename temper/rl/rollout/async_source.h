// Asynchronous rollout (rl.max_staleness): batches are sampled on a separate thread, by an earlier
// version of the policy, while the current version trains on earlier batches.
//
// Which version samples a batch depends only on the plan, never on timing: sampling of a batch
// starts as soon as at most max_staleness updates remain before it is used. With rollout.update:
// finish all of it is sampled with the weights of that moment: with one update per batch, batch n
// (from 0) by version max(0, n - max_staleness). With rollout.update: continue its completions
// continue with the weights after each later update (in-flight weight updates: Piche et al.,
// PipelineRL, arXiv 2509.19128), an equal share of max_new_tokens by each version; keys and values
// of the tokens so far are recomputed. Results are bit-identical for any timing.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/work_queue.h"
#include "temper/rl/config.h"
#include "temper/rl/rollout/source.h"
#include "temper/rl/rollout/sync_source.h"
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

class AsyncSource : public RolloutSource {
 public:
  // `inner` samples; its collectives, if any, use a separate group (dist::Group::clone_for_thread)
  // and its messages go to `messages`. format: of its episodes' lines.
  AsyncSource(const RlConfig& config, std::unique_ptr<SyncSource> inner,
              std::unique_ptr<KeptMessages> messages, LineFormat format);
  ~AsyncSource() override;

  int64_t planned_batches() const override { return inner_->planned_batches(); }
  RolloutBatch next(int64_t policy_version) override;
  void look_ahead(int64_t policy_version, int64_t updates_left) override;
  bool exact() const override { return false; }
  bool samples() const override { return true; }
  void describe(MetricsRow& row) const override;
  bool evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) override;
  Json state() const override;
  void restore(const Json& state, const std::string& where) override;
  std::function<void(train::TaskState&)> in_flight() const override;
  void restore_in_flight(const train::TaskState& state, const std::string& where) override;
  std::vector<std::pair<std::string, std::string>> summary() const override;

 private:
  // A batch whose completions have been sampled up to some token.
  struct Sampled {
    // The completions so far, as lines of a rollouts file; empty where the data has ended. Only of
    // a batch that is not complete.
    std::string lines;
    // Only of a complete batch.
    RolloutBatch rollouts;
    Json source;       // inner's state after the batch
    MetricsRow about;  // metrics of inner's describe() for the batch
  };
  struct Batch {
    // Both belong to the thread that trains.
    int64_t planned = 0;  // number of tokens of a completion that were asked for so far
    std::shared_future<Sampled> sampled;  // result, up to `planned` tokens
    // Belongs to the thread that samples.
    std::unique_ptr<PartialBatch> partial;
  };
  using BatchPointer = std::shared_ptr<Batch>;
  // One of the batches that a version of the policy samples, up to some token.
  struct Stage {
    BatchPointer batch;
    int64_t tokens;
    std::promise<Sampled> sampled;
  };
  struct Job {
    int64_t version = 0;
    std::deque<Stage> stages{};  // stages that are not done
  };
  // A batch in flight as it was when a checkpoint was begun.
  struct InFlight {
    int64_t planned;
    std::shared_future<Sampled> sampled;
  };

  int64_t longest() const { return config_.rollout.max_new_tokens; }
  // Adds to the job what the batch has to sample now, so that the rest is divided evenly over
  // `stages_left` stages, this one included.
  void plan(Job& job, const BatchPointer& batch, int64_t stages_left) const;
  // Called on all ranks in the same order, as the sampling thread runs collectives in that order.
  void submit(Job job);
  // These run on the sampling thread.
  void run(const std::function<void()>& work);
  void sample(Job& job);
  Sampled take(Batch& batch, int64_t tokens, int64_t version);
  void add_in_flight(const std::vector<InFlight>& batches, train::TaskState& state) const;

  const RlConfig& config_;
  std::unique_ptr<KeptMessages> messages_;
  const LineFormat format_;
  std::unique_ptr<SyncSource> inner_;

  // These belong to the thread that trains.
  std::deque<BatchPointer> in_flight_;  // in the order in which they will be used
  int64_t continued_ = -1;              // the last version that continues batches in flight
  Json state_after_;                    // inner's state after the batch that next() gave last
  MetricsRow about_;                    // metrics of that batch

  std::exception_ptr failure_;  // exception of the sampling thread's first failed job
  WorkQueue queue_;             // last: its jobs use the others
};

}  // namespace temper::rl
