// The teacher of distillation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "temper/distill/config.h"
#include "temper/models/model.h"
#include "temper/ops/logits/top_tokens.h"
#include "temper/train/roles.h"

namespace temper::distill {

// The teacher, its weights kept as distill.teacher_dtype says. Throws ConfigError where its
// vocabulary is not the student's, of another size, or with other tokens, and the config does not
// compare across tokenizers.
train::FrozenSource teacher_source(const DistillConfig& config, const train::Policy& policy);

// A teacher outside of this process: its top-k log-probabilities come from a file (teacher_file.h);
// a server would be another class.
class RemoteTeacher {
 public:
  virtual ~RemoteTeacher() = default;
  // The likeliest tokens at each of the pass's targets, [M, k]. Throws DataError or RunError.
  virtual ops::TopTokens top_tokens(const train::ForwardPass& pass) = 0;
};

}  // namespace temper::distill
