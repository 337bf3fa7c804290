// Where the completions of a rollout batch come from, and with which weights: this process with the
// current policy (no Sampler), this process with kept weights of an earlier policy while training
// continues, servers that are given the weights, or ranks of their own (the config's `roles`).
#pragma once

#include <functional>
#include <memory>

#include "temper/dist/mesh.h"
#include "temper/generate/completion_source.h"
#include "temper/rl/config.h"
#include "temper/roles/role_ranks.h"
#include "temper/train/messages.h"
#include "temper/train/policy.h"

namespace temper::rl {

class Sampler {
 public:
  virtual ~Sampler() = default;

  // Keeps the policy's weights as they are, after `version` updates, for use(). On the thread that
  // trains, on all ranks.
  virtual void keep(int64_t version) = 0;
  // From now on completions are sampled with these weights. On the thread that samples; versions
  // come in order, and earlier ones are given up.
  virtual void use(int64_t version) = 0;
  virtual generate::CompletionSource& completions() = 0;
  // Whether completions are, bit for bit, those of the policy as it is when use() is called.
  virtual bool exact() const { return false; }
  // Whether this process computes them, and so all ranks that hold parts of its model.
  virtual bool samples_here() const { return true; }
  // The version that samples after use(version).
  virtual int64_t sampling_version(int64_t version) const { return version; }
  // Divides the machine's processors between sampling and the calling thread, which trains now or
  // waits.
  virtual void share_processors(bool /*training*/) {}
  // Ends sampling: completions that were asked for are not delivered. From any thread.
  virtual void stop() {}
};

// As the config says; null: the rollout engine samples with the current policy. role_ranks: null
// where no rank has a role of its own. stop: whether the run was asked to end; of any thread.
std::unique_ptr<Sampler> make_sampler(const RlConfig& config, train::Policy& policy,
                                      const dist::Mesh& mesh, roles::RoleRanks* role_ranks,
                                      train::Messages& messages, std::function<bool()> stop = {});

}  // namespace temper::rl
