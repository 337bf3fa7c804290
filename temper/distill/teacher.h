// The teacher of distillation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "temper/distill/config.h"
#include "temper/ops/logits/top_tokens.h"
#include "temper/ops/weight.h"
#include "temper/train/roles.h"

namespace temper::distill {

// Loads the teacher into roles.teacher. Throws ConfigError where its vocabulary is not the
// student's: of another size, or with other tokens.
void load_teacher(const DistillConfig& config, train::Roles& roles);

// How the weights of the teacher in a directory are kept: distill.teacher_dtype; auto is bfloat16
// where the files hold no more, which loses nothing, else float32.
ops::WeightFormat teacher_format(const DistillSection& section, const std::string& directory);

// Ids must mean the same to both: a probability is a token's. Throws ConfigError where the teacher
// in this directory, of so many tokens, has another vocabulary than the student.
void check_vocabulary(const DistillConfig& config, const train::Policy& policy,
                      const std::string& directory, int64_t teacher_tokens);

// A teacher outside of this process: its top-k log-probabilities come from a file (teacher_file.h);
// a server would be another class.
class RemoteTeacher {
 public:
  virtual ~RemoteTeacher() = default;
  // The likeliest tokens at each of the pass's targets, [M, k]. Throws DataError or RunError.
  virtual ops::TopTokens top_tokens(const train::ForwardPass& pass) = 0;
};

}  // namespace temper::distill
