// Runs of a training verb in one process, on one base. Each is the code that it is alone, with its
// own rows, optimizer, schedule, evaluation, metrics, checkpoints and end, on a thread of its own.
// One thread works at a time: until it asks for a forward pass over the base, or for the backward
// pass of one, or ends. When all have come that far, passes that fit together are made as one
// (joint_model.h), in which each run's numbers and gradients are those of its own pass, bit for
// bit; so it does not matter to a run which others there are, nor at which steps they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "temper/models/adapters/lora_config.h"
#include "temper/train/joint/joint_model.h"

namespace temper::train {

class JointRuns;

// A run, as its own thread sees it.
class JointRun {
 public:
  // That of this thread; null: the thread is no run's, and everything is as in a process of its
  // own.
  static JointRun* current();

  // models::load_model, on the memory of runs that came before where they loaded the same. Throws
  // what that throws.
  std::unique_ptr<models::CausalLM> load(const std::string& directory,
                                         const models::Storage& storage);
  // The same of models::load_scalar_model.
  std::unique_ptr<models::ScalarModel> load_scalar(const std::string& directory,
                                                   const models::Storage& storage, uint64_t seed);
  // models::load_model of a model that runs along and does not train, on the memory of that of
  // other runs.
  std::unique_ptr<models::CausalLM> load_frozen(const std::string& directory,
                                                const models::Storage& storage);
  // From now on passes of this model, which load() gave and which has such an adapter, are made
  // with those of others, where it is on their memory and has no weights of its own besides.
  void share_passes(models::Model& policy, const models::LoraConfig& lora);

  // Whether the pass may be made with others': not under dropout or noise, nor with images, experts
  // that are watched or a reduced vocabulary.
  bool shares(const models::Model& model, const ForwardPass& pass,
              const PassOptions& options) const;
  // train::token_logp of such a pass.
  ops::TokenLogp token_logp(const ForwardPass& pass, const PassOptions& options);
  // The hidden states of all of its tokens, of a scalar model.
  at::Tensor hidden(const ForwardPass& pass, const PassOptions& options);

 private:
  friend class JointRuns;
  enum class State { kReady, kWaiting, kEnded };
  struct Call {
    JointPass::Request request;
    bool keeps_panels = false;  // nn::keeps_panels()
    bool backward = false;      // of `made`
    std::shared_ptr<JointPass> made;
    size_t part = 0;  // of `made`
    int64_t number = 0;
    std::exception_ptr error;
  };
  explicit JointRun(JointRuns& runs) : runs_(runs) {}
  void wait(Call& call);
  int adapter(int index);
  bool begin(const std::string& directory, const models::Storage& storage,
             std::optional<uint64_t> seed);
  std::vector<at::Tensor> outputs(const ForwardPass& pass, const PassOptions& options);

  JointRuns& runs_;
  bool has_base_ = false;            // the policy is on the joint model's memory
  models::Model* policy_ = nullptr;  // whose passes are shared
  models::LoraConfig lora_;
  std::vector<std::pair<int, int>> adapters_;  // of the policy, of the joint model
  State state_ = State::kReady;
  Call* call_ = nullptr;  // while it waits
  std::thread thread_;
};

class JointRuns {
 public:
  // most_tokens: of a pass that several runs share.
  explicit JointRuns(int64_t most_tokens) : most_tokens_(most_tokens) {}
  // Calls each on a thread of its own, and makes their passes on this one. They throw nothing.
  void run(const std::vector<std::function<void()>>& runs);

 private:
  friend class JointRun;
  void resume(JointRun& run);
  bool serve();
  bool serve_backward();
  void remove_ended();
  void serve_forward(const std::vector<JointRun*>& runs);
  std::vector<JointRun*> sharing(std::vector<JointRun*> waiting) const;

  const int64_t most_tokens_;
  std::unique_ptr<JointModel> model_;                // null until a run has loaded it
  std::vector<std::unique_ptr<JointModel>> frozen_;  // that run along
  std::deque<JointRun> runs_;
  struct Open {
    std::weak_ptr<JointPass> pass;
    std::vector<JointRun*> runs;
  };
  std::vector<Open> open_;  // passes whose backward pass is to come
  std::vector<int> ended_;  // the joint model's adapters of runs that have ended
  int64_t calls_ = 0;
  std::mutex mutex_;
  std::condition_variable turned_;
  JointRun* turn_ = nullptr;  // whose thread works; null: the one of run()
};

}  // namespace temper::train
