// The config of distillation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/ops/logits/divergence.h"
#include "temper/train/sft/sft.h"

namespace temper::distill {

// A student's layer and the teacher's that it learns from, counted from 0.
struct LayerPair {
  int64_t student = 0, teacher = 0;
  bool operator==(const LayerPair&) const = default;
};

// `uniform`, `last`, or a list of pairs.
struct LayerChoice {
  std::string rule = "uniform";  // empty: `pairs`
  std::vector<std::array<int64_t, 2>> pairs;
  bool operator==(const LayerChoice&) const = default;
};

// uniform: student layer i of S learns from teacher layer round((i + 1) T / S) - 1, halves up, but
// at least 0. Throws ConfigError that begins with `where` for a layer that is not there.
std::vector<LayerPair> layer_pairs(const LayerChoice& choice, int64_t student_layers,
                                   int64_t teacher_layers, const std::string& where);

// A teacher, and which rows learn from it how much.
struct TeacherSection {
  std::string path;                // empty: it has a url
  std::optional<std::string> url;  // of a `temper serve`
  std::optional<std::string> api_key_env;
  double timeout_seconds = 120;
  double weight = 1;                // of its loss, among the teachers of a row
  std::vector<std::string> groups;  // of rows, as data.balance names them; empty: all rows
  void fields(Fields& f);
  // Whether rows of the group learn from it.
  bool teaches(const std::string& group) const;
};

struct DistillSection {
  enum class TeacherDtype { kAuto, kFloat32, kBfloat16 };
  enum class CrossTokenizer { kGold, kUld };

  std::vector<TeacherSection> teacher;  // empty: not given
  TeacherDtype teacher_dtype = TeacherDtype::kAuto;
  std::optional<std::string> teacher_logprobs;
  std::string strategy = "logit";
  double alpha = 0.5;
  double temperature = 1;
  ops::DivergenceKind divergence = ops::DivergenceKind::kForwardKl;
  double jsd_beta = 0.5;
  int64_t top_k = 0;
  std::optional<CrossTokenizer> cross_tokenizer;
  LayerChoice layers;
  std::optional<double> projection_learning_rate;
  double off_policy_fraction = 0;
  std::optional<double> lambda;
  bool seq_kd = false;
  void fields(Fields& f);
  // The share of each teacher in the loss of a row of this group: its weight over the sum of those
  // that teach the group, 0 where it does not. Throws DataError where none does.
  std::vector<float> shares(const std::string& group) const;
  // Whether some teacher is behind a url.
  bool asks_servers() const;
};

struct DistillConfig : train::SftConfig {
  DistillSection distill;
  void fields(Fields& f) override;
  std::vector<std::string> evaluated_metrics() const override;
  bool divides_layers() const override { return false; }  // strategies read whole ones
  // Whether the student samples the rows that it trains on.
  bool samples() const;
  ops::CacheDtype cache_dtype() const override {
    return samples() ? rollout.cache_dtype : ops::CacheDtype::kFloat32;
  }
  // Whether the teacher reads text in tokens of its own.
  bool crosses() const;
  // The weight of distill_loss: under a strategy that samples there is no other loss.
  double alpha() const { return samples() ? 1 : distill.alpha; }

 protected:
  void complete() override;
  std::vector<train::MissingKey> missing() const override;
  void validate() const override;

 private:
  void validate_teachers() const;
  void validate_servers() const;
};

}  // namespace temper::distill
