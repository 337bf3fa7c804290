// The teacher of distillation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "temper/distill/config.h"
#include "temper/models/model.h"
#include "temper/ops/logits/top_tokens.h"
#include "temper/train/roles/roles.h"

namespace temper::distill {

// The teachers that are models of this process, their weights kept as distill.teacher_dtype says.
// Throws ConfigError where a vocabulary is not the student's, of another size, or with other
// tokens, and the config does not compare across tokenizers.
std::vector<train::FrozenSource> teacher_sources(const DistillConfig& config,
                                                 const train::Policy& policy);

// The directory of the only teacher, or of the first. Throws ConfigError where it is no model.
std::string teacher_directory(const DistillConfig& config);

// A teacher outside of this process: its likeliest tokens come from a file (teacher_file.h) or a
// server (teacher_server.h).
class RemoteTeacher {
 public:
  virtual ~RemoteTeacher() = default;
  // The likeliest tokens at each of the pass's targets, [M, k]. Throws DataError or RunError.
  virtual ops::TopTokens top_tokens(const train::ForwardPass& pass) = 0;
  // Throws DataError where it is known beforehand that it has none at one of the pass's targets.
  // From several threads.
  virtual void check_has(const train::ForwardPass& /*pass*/) const {}
};

// The teachers of a run: the first model is roles.teacher, the models of all others are in
// roles.others.
class Teachers {
 public:
  // Loads those of the config, and asks the servers of those that are behind a url; none where the
  // roles have no teacher. Throws as teacher_sources() and open_teacher_server().
  Teachers(const DistillConfig& config, train::Roles& roles);

  size_t size() const { return models_.size(); }
  // Whether the teacher is behind a url: then it has remote(), else model().
  bool is_remote(size_t teacher) const { return models_[teacher] == nullptr; }
  models::CausalLM& model(size_t teacher) const { return *models_[teacher]; }
  RemoteTeacher& remote(size_t teacher) const { return *remotes_[teacher]; }

 private:
  std::vector<std::unique_ptr<train::Frozen>> others_;
  std::vector<models::CausalLM*> models_;
  std::vector<std::unique_ptr<RemoteTeacher>> remotes_;
};

}  // namespace temper::distill
