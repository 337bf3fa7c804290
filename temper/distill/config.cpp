#include "temper/distill/config.h"

#include <algorithm>

#include "temper/distill/strategy.h"

namespace temper {

template <>
inline constexpr std::array enum_names<distill::DistillSection::TeacherDtype> = {"auto", "float32",
                                                                                 "bfloat16"};
template <>
inline constexpr std::array enum_names<distill::DistillSection::CrossTokenizer> = {"gold", "uld"};
template <>
inline constexpr std::array enum_names<ops::DivergenceKind> = {"forward_kl", "reverse_kl", "jsd"};

template <>
struct config_detail::Traits<distill::LayerChoice> {
  using Pairs = Traits<std::vector<std::array<int64_t, 2>>>;
  static std::string type(const Rule&) { return "uniform | last | list of [student, teacher]"; }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   distill::LayerChoice& value) {
    value = {};
    if (node.kind == YamlNode::Kind::kList && !node.items.empty()) {
      value.rule.clear();
      return Pairs::read(node, path, rule, value.pairs);
    }
    const bool known =
        node.kind == YamlNode::Kind::kScalar && (node.text == "uniform" || node.text == "last");
    if (!known) fail(node, path, "uniform, last or a list of [student, teacher] layers");
    value.rule = node.text;
  }
  static YamlNode write(distill::LayerChoice& value) {
    return value.rule.empty() ? Pairs::write(value.pairs) : YamlNode::scalar(value.rule);
  }
  static std::vector<Field> children() { return {}; }
};

}  // namespace temper

namespace temper::distill {

std::vector<LayerPair> layer_pairs(const LayerChoice& choice, int64_t student_layers,
                                   int64_t teacher_layers, const std::string& where) {
  if (choice.rule == "last") return {{student_layers - 1, teacher_layers - 1}};
  std::vector<LayerPair> pairs;
  if (choice.rule == "uniform") {
    for (int64_t i = 0; i < student_layers; ++i) {
      const int64_t above = (2 * (i + 1) * teacher_layers + student_layers) / (2 * student_layers);
      pairs.push_back({i, std::max<int64_t>(above - 1, 0)});
    }
    return pairs;
  }
  const auto exists = [&](const char* whose, int64_t layer, int64_t layers) {
    check<ConfigError>(layer >= 0 && layer < layers, where, ": found layer ", layer, " of the ",
                       whose, ", which has layers 0 to ", layers - 1);
  };
  for (const auto& [student, teacher] : choice.pairs) {
    exists("student", student, student_layers);
    exists("teacher", teacher, teacher_layers);
    pairs.push_back({student, teacher});
  }
  return pairs;
}

void TeacherSection::fields(Fields& f) {
  f.add("path", path, "directory or id of the teacher model", reads(InputFiles::kModel));
  f.add("url", url,
        "address of a temper serve that has the teacher in place of `path`, such as "
        "http://HOST:8000; needs distill.top_k and the strategy logit or on_policy");
  f.add("api_key_env", api_key_env,
        "url: name of the environment variable that holds the server's API key; null: none");
  f.add("timeout_seconds", timeout_seconds,
        "url: timeout of a request; a failed one is tried 4 times in all", above(0));
  f.add("weight", weight,
        "weight of this teacher's loss; the weights of a row's teachers are divided by their sum",
        above(0));
  f.add("groups", groups,
        "groups of rows (data.balance) that this teacher teaches; empty: all rows", one_or_list());
}

bool DistillSection::asks_servers() const {
  return std::ranges::any_of(teacher,
                             [](const TeacherSection& one) { return one.url.has_value(); });
}

bool TeacherSection::teaches(const std::string& group) const {
  return groups.empty() || std::ranges::find(groups, group) != groups.end();
}

std::vector<float> DistillSection::shares(const std::string& group) const {
  double sum = 0;
  for (const TeacherSection& one : teacher)
    if (one.teaches(group)) sum += one.weight;
  check<DataError>(sum > 0, "distill.teacher: no teacher has the group `", group,
                   "` of a row among its groups; add it to a teacher's groups, or give one teacher "
                   "no groups: it teaches all rows");
  std::vector<float> shares;
  for (const TeacherSection& one : teacher)
    shares.push_back(one.teaches(group) ? static_cast<float>(one.weight / sum) : 0);
  return shares;
}

void DistillSection::fields(Fields& f) {
  f.add("teacher", teacher,
        "directory or id of the teacher model, {url: http://HOST:PORT} of a temper serve that has "
        "it, or a list of {path or url, weight, groups}: the loss is the weighted mean of those on "
        "a row's teachers",
        one_or_list());
  f.add("teacher_dtype", teacher_dtype,
        "dtype of the teacher's weights; auto: bfloat16 if its files hold that, else float32");
  f.add(
      "teacher_logprobs", teacher_logprobs,
      "file of the teacher's top-k log-probabilities, written by --precompute and read instead of "
      "the teacher",
      reads(InputFiles::kOther));
  f.add("strategy", strategy, "what the student matches (temper list losses)",
        one_of(strategies().names()));
  f.add("alpha", alpha,
        "weight of the distillation loss; the SFT loss (task_loss) has weight 1 - alpha",
        between(0, 1));
  f.add("temperature", temperature, "softmax temperature of teacher and student",
        Rule{.min = 0, .max = 1000, .above_min = true});
  f.add("divergence", divergence,
        "forward_kl: KL(teacher || student); reverse_kl: KL(student || teacher); jsd: generalized "
        "Jensen-Shannon divergence");
  f.add("jsd_beta", jsd_beta, "jsd: weight of the teacher in the mixture",
        Rule{.min = 0, .max = 1, .above_min = true, .below_max = true});
  f.add("top_k", top_k, "compare distributions over the teacher's top_k most likely tokens; 0: all",
        at_least(0));
  f.add("cross_tokenizer", cross_tokenizer,
        "for a teacher with another tokenizer, which then reads the same text in its own tokens: "
        "gold compares tokens of equal text by the divergence and the others sorted, uld all of "
        "them sorted; null: both have the same tokens");
  f.add("layers", layers,
        "pairs of student and teacher layers: evenly spaced (uniform), both last layers (last), or "
        "a list");
  f.add("projection_learning_rate", projection_learning_rate,
        "learning rate of a strategy's learned projections; null: the student's", at_least(0));
  f.add("off_policy_fraction", off_policy_fraction,
        "on_policy: share of rows whose completion comes from the file instead of the student",
        between(0, 1));
  f.add("lambda", lambda,
        "on_policy: probability that the student completes the rows of a step, instead of some of "
        "every step (off_policy_fraction); GKD's lambda",
        between(0, 1));
  f.add("seq_kd", seq_kd,
        "on_policy: completions that the student does not sample are the teacher's samples instead "
        "of the file's");
}

std::vector<std::string> DistillConfig::evaluated_metrics() const {
  std::vector<std::string> metrics{"loss", "distill_loss", "task_loss", "supervised_tokens"};
  if (!samples()) metrics.push_back("rows");
  return with_groups(std::move(metrics), {"loss", "distill_loss", "task_loss"});
}

void DistillConfig::fields(Fields& f) {
  RunConfig::fields(f);  // without SFT's own section
  f.add("distill", distill, "the teacher and the distillation loss");
  f.add("rollout", rollout, "how the student samples, for on_policy and train.eval_rewards");
}

bool DistillConfig::crosses() const {
  const std::vector<std::string>& reads = strategies().find(distill.strategy).reads;
  return distill.cross_tokenizer &&
         std::find(reads.begin(), reads.end(), "cross_tokenizer") != reads.end();
}

bool DistillConfig::samples() const { return strategies().find(distill.strategy).samples; }

void DistillConfig::complete() {
  RunConfig::complete();
  // Earlier versions wrote "" for a run that reads distill.teacher_logprobs alone.
  const auto is_empty = [](const TeacherSection& one) {
    return one.path.empty() && !one.url && one.weight == 1 && one.groups.empty();
  };
  if (distill.teacher.size() == 1 && is_empty(distill.teacher[0])) distill.teacher.clear();
  // Where products round to bfloat16 by default, so does attention, and flash kernels read such a
  // cache.
  if (defaulted.contains("model.arithmetic") && !was_set("rollout.cache_dtype") && samples()) {
    rollout.cache_dtype = ops::CacheDtype::kBFloat16;
    defaulted["rollout.cache_dtype"] = "bfloat16";
  }
  const StrategyEntry& strategy = strategies().find(distill.strategy, where("distill.strategy"));
  // A resolved config has every key: one with its default says nothing.
  DistillSection standard, own = distill;
  const auto text = [](const Field& field) { return dump_yaml(write_fields({&field, 1})); };
  const std::vector<Field> usual = Fields::of(standard), found = Fields::of(own);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string& key = found[i].name;
    const auto among = [&key](const std::vector<std::string>& keys) {
      return std::find(keys.begin(), keys.end(), key) != keys.end();
    };
    if (!among(strategy_keys()) || among(strategy.reads) || text(usual[i]) == text(found[i]))
      continue;
    warnings.push_back(
        str(where("distill." + key), " has no effect with distill.strategy: ", distill.strategy));
  }
}

std::vector<train::MissingKey> DistillConfig::missing() const {
  std::vector<train::MissingKey> keys = SftConfig::missing();
  if (distill.teacher.empty() && !distill.teacher_logprobs)
    keys.push_back({"distill.teacher", "directory of the teacher model"});
  return keys;
}

void DistillConfig::validate_teachers() const {
  const std::vector<TeacherSection>& teachers = distill.teacher;
  for (const TeacherSection& teacher : teachers) {
    require(teacher.path.find("://") == std::string::npos, "distill.teacher", "found ",
            teacher.path,
            " as a path; the address of a server is a url: distill.teacher.url=", teacher.path);
    require(teacher.path.empty() == teacher.url.has_value(), "distill.teacher",
            teacher.url ? "found a teacher with `path` and `url`, expected one of them"
                        : "found a teacher without `path` or `url`");
    require(teacher.groups.empty() || data.balance.groups(), "distill.teacher",
            "found `groups`, which data.balance makes: write data.balance: {mode: report, field: "
            "NAME} for the values of the rows' field NAME");
  }
  if (distill.asks_servers()) validate_servers();
  if (teachers.size() <= 1) return;
  const std::vector<std::string>& reads = strategies().find(distill.strategy).reads;
  require(std::ranges::find(reads, "layers") == reads.end() && !crosses(), "distill.teacher",
          "found ", teachers.size(), " teachers, expected one: ",
          crosses() ? "spans of two tokenizers are those of one teacher"
                    : "layers are paired with those of one teacher");
  require(!distill.teacher_logprobs, "distill.teacher_logprobs", "found a file with ",
          teachers.size(), " teachers, expected one: the file is one teacher's");
  require(!distill.seq_kd, "distill.seq_kd", "found true with ", teachers.size(),
          " teachers, expected one, which completes the rows");
}

// What a server gives are its likeliest tokens at given places.
void DistillConfig::validate_servers() const {
  const std::vector<std::string>& reads = strategies().find(distill.strategy).reads;
  require(std::ranges::find(reads, "top_k") != reads.end(), "distill.strategy", "found ",
          distill.strategy,
          " with a teacher behind a url, expected logit or on_policy: ", distill.strategy,
          " reads the teacher's layers, of a model in this process");
  require(!crosses(), "distill.cross_tokenizer",
          "found with a teacher behind a url, expected null: it compares whole vocabularies");
  require(distill.top_k > 0, "distill.top_k",
          "found 0 with a teacher behind a url, expected 1 or more, such as 64: a whole vocabulary "
          "of each token would cross the network");
  require(!distill.seq_kd, "distill.seq_kd",
          "found true with a teacher behind a url, expected false: it samples nothing");
  require(!distill.teacher_logprobs, "distill.teacher_logprobs",
          "found a file with a teacher behind a url, expected one of them");
}

void DistillConfig::validate() const {
  SftConfig::validate();
  validate_teachers();
  require(!distill.teacher_logprobs || distill.strategy == "logit", "distill.teacher_logprobs",
          "expected distill.strategy: logit: ", distill.strategy, " reads the teacher itself");
  require(train.z_loss == 0, "train.z_loss", "found ", train.z_loss,
          ", expected 0: only sft's loss has this term");
  const std::vector<std::string>& reads = strategies().find(distill.strategy).reads;
  require(mesh.context == 1 || (std::ranges::find(reads, "layers") == reads.end() && !crosses()),
          "mesh.context", "found ", mesh.context,
          ", expected 1: layers, and spans of two tokenizers, are compared over whole rows");
  require(!samples() || adapter.dropout == 0, "adapter.dropout", "found ", adapter.dropout,
          ", expected 0 under on_policy: the student that trains is the one that sampled");
  if (crosses()) {
    require(!distill.teacher_logprobs, "distill.teacher_logprobs",
            "found a file with distill.cross_tokenizer, expected distill.teacher: its spans are "
            "not known before");
    require(distill.top_k == 0, "distill.top_k", "found ", distill.top_k,
            " with distill.cross_tokenizer, expected 0: it compares whole vocabularies");
    require(!distill.seq_kd, "distill.seq_kd",
            "found true with distill.cross_tokenizer, expected false: the teacher's samples are no "
            "tokens of the student's");
  }
  if (!samples()) return;
  require(!distill.lambda || distill.off_policy_fraction == 0, "distill.lambda",
          "found together with distill.off_policy_fraction; expected one of them: by steps, or by "
          "rows of every step");
  const bool others = distill.lambda ? *distill.lambda < 1 : distill.off_policy_fraction > 0;
  require(!distill.seq_kd || others, "distill.seq_kd",
          "found true, and the student completes all rows; expected distill.lambda below 1, or "
          "distill.off_policy_fraction above 0");
  rollout.validate();
}

}  // namespace temper::distill
