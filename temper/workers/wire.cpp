#include "temper/workers/wire.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/image/source.h"
#include "temper/models/vision/image_rows.h"

namespace temper::workers {
namespace {

constexpr const char* kWhere = "another rank";

// A member of another rank's message. Ranks run the same program: a message that lacks one came
// from something else.
template <class T>
T member(const Json& json, const char* key) {
  try {
    return json.at(key).get<T>();
  } catch (const Json::exception& e) {
    throw DataError(str(kWhere, ": `", key, "`: ", e.what()));
  }
}

// Each image once, and which tokens stand for which: [begin, count, first, image].
Json images_json(const ImageSpans& images) {
  std::map<std::string, size_t> numbers;
  Json sources = Json::array(), spans = Json::array();
  for (const ImageSpan& span : images) {
    const auto [at, added] = numbers.try_emplace(span.image->digest(), numbers.size());
    if (added) sources.push_back(span.image->source());
    spans.push_back({span.begin, span.count, span.first, at->second});
  }
  return {{"sources", std::move(sources)}, {"spans", std::move(spans)}};
}

ImageSpans parse_images(const Json& json, const data::ImageFormat* format, int64_t tokens) {
  const auto spans = member<std::vector<std::array<int64_t, 4>>>(json, "spans");
  check<DataError>(format || spans.empty(), kWhere, ": images, which this model does not see");
  std::vector<std::shared_ptr<const Image>> images;
  for (const auto& source : member<std::vector<std::string>>(json, "sources"))
    images.push_back(Image::open({source, {}}, "", format->options.limits));
  ImageSpans out;
  int64_t least = 0;
  for (const auto& [begin, count, first, image] : spans) {
    check<DataError>(begin >= least && count > 0 && count <= tokens - begin && first >= 0 &&
                         image >= 0 && image < std::ssize(images),
                     kWhere, ": images that are not among the tokens");
    least = begin + count;
    out.push_back({begin, count, first, images[static_cast<size_t>(image)], format->processor});
  }
  return out;
}

}  // namespace

std::string sample_text(int64_t version, const generate::Request& request) {
  return dump_json({{"version", version},
                    {"images", images_json(models::image_spans(request.rows))},
                    {"index", request.index},
                    {"prompt", request.prompt},
                    {"samples", request.num_samples},
                    {"first_sample", request.first_sample},
                    {"position", request.position},
                    {"begun", request.begun},
                    {"max_new_tokens", request.options.max_new_tokens},
                    {"min_new_tokens", request.options.min_new_tokens}});
}

SampleAsk parse_sample(const std::string& text, const generate::GenerationOptions& options,
                       const data::ImageFormat* images) {
  const Json json = parse_json(text, kWhere);
  SampleAsk ask;
  ask.version = member<int64_t>(json, "version");
  generate::Request& r = ask.request;
  r.index = member<int64_t>(json, "index");
  r.prompt = member<std::vector<int32_t>>(json, "prompt");
  r.rows = models::external_rows(
      parse_images(member<Json>(json, "images"), images, std::ssize(r.prompt)));
  r.num_samples = member<int64_t>(json, "samples");
  r.first_sample = member<int64_t>(json, "first_sample");
  r.position = member<int64_t>(json, "position");
  check<DataError>(r.num_samples > 0, kWhere, ": `samples`: found ", r.num_samples);
  r.options = options;
  r.begun = member<int64_t>(json, "begun");
  r.options.max_new_tokens = member<int64_t>(json, "max_new_tokens");
  r.options.min_new_tokens = member<int64_t>(json, "min_new_tokens");
  return ask;
}

std::string completions_text(const std::vector<generate::remote::RemoteSample>& samples) {
  Json all = Json::array();
  for (const generate::remote::RemoteSample& s : samples)
    all.push_back({{"tokens", s.tokens},
                   {"logprobs", s.logprobs},
                   {"stopped", s.stopped},
                   {"text", s.text.value_or("")},
                   {"kept", s.kept}});
  return dump_json(all);
}

std::vector<generate::remote::RemoteSample> parse_completions(const std::string& text) {
  const Json all = parse_json(text, kWhere);
  check<DataError>(all.is_array(), kWhere, ": found no list of completions");
  std::vector<generate::remote::RemoteSample> samples;
  for (const Json& one : all) {
    samples.push_back({member<std::vector<int32_t>>(one, "tokens"),
                       member<std::vector<float>>(one, "logprobs"), member<bool>(one, "stopped"),
                       member<std::string>(one, "text"),
                       member<std::vector<std::vector<int32_t>>>(one, "kept")});
    const generate::remote::RemoteSample& s = samples.back();
    check<DataError>(s.tokens.size() == s.logprobs.size() && !s.tokens.empty() &&
                         (s.kept.empty() || s.kept.size() == s.tokens.size()),
                     kWhere, ": a completion whose tokens and log-probabilities do not match");
  }
  return samples;
}

std::string score_text(const train::ForwardPass& pass, double temperature) {
  const Forest& f = *pass.forest;
  const ops::KeptTokens none, &kept = pass.kept ? *pass.kept : none;
  return dump_json({{"tokens", f.tokens},
                    {"images", images_json(models::image_spans(f.rows))},
                    {"segment_start", f.segment_start},
                    {"parent", f.parent},
                    {"rows", pass.row_M},
                    {"targets", pass.target_M},
                    {"kept_offset", kept.offset},
                    {"kept", kept.id},
                    {"temperature", temperature}});
}

ScoreAsk parse_score(const std::string& text, const data::ImageFormat* images) {
  const Json json = parse_json(text, kWhere);
  const auto tokens = member<std::vector<int32_t>>(json, "tokens");
  const auto start = member<std::vector<int64_t>>(json, "segment_start"),
             parent = member<std::vector<int64_t>>(json, "parent");
  ScoreAsk ask;
  ask.temperature = member<double>(json, "temperature");
  ask.pass.row_M = member<std::vector<int64_t>>(json, "rows");
  ask.pass.target_M = member<std::vector<int64_t>>(json, "targets");
  const int64_t count = static_cast<int64_t>(tokens.size());
  const std::vector<ExternalRows> all_rows =
      models::external_rows(parse_images(member<Json>(json, "images"), images, count));
  bool fits = start.size() == parent.size() + 1 && start.front() == 0 && start.back() == count &&
              ask.pass.row_M.size() == ask.pass.target_M.size() && std::isfinite(ask.temperature);
  for (size_t s = 0; fits && s < parent.size(); ++s) {
    fits = start[s] < start[s + 1] && start[s + 1] <= count && parent[s] < static_cast<int64_t>(s);
    if (!fits) break;
    const std::span<const int32_t> segment(tokens.data() + start[s],
                                           static_cast<size_t>(start[s + 1] - start[s]));
    const std::vector<ExternalRows> rows = rows_within(all_rows, start[s], std::ssize(segment));
    if (parent[s] < 0)
      ask.pass.forest->add_root(segment, 0, rows);
    else
      ask.pass.forest->add_child(parent[s], segment, rows);
  }
  for (const int64_t row : ask.pass.row_M) fits = fits && row >= 0 && row < count;
  auto kept = std::make_shared<ops::KeptTokens>();
  kept->offset = member<std::vector<int64_t>>(json, "kept_offset");
  kept->id = member<std::vector<int32_t>>(json, "kept");
  const std::vector<int64_t>& offset = kept->offset;
  fits = fits && (offset.empty() || (offset.size() == ask.pass.target_M.size() + 1 &&
                                     offset.front() == 0 && offset.back() == std::ssize(kept->id) &&
                                     std::is_sorted(offset.begin(), offset.end())));
  check<DataError>(fits, kWhere, ": the forest to score is none");
  if (!offset.empty()) ask.pass.kept = std::move(kept);
  return ask;
}

std::string scores_bytes(const at::Tensor& logp_M) {
  const at::Tensor values = logp_M.to(at::kFloat).contiguous();
  return {reinterpret_cast<const char*>(values.const_data_ptr<float>()), values.nbytes()};
}

at::Tensor parse_scores(const std::string& bytes, int64_t count) {
  at::Tensor logp_M = at::empty({count}, at::kFloat);
  check<DataError>(bytes.size() == logp_M.nbytes(), kWhere, ": ", bytes.size() / sizeof(float),
                   " log-probabilities of ", count, " tokens");
  std::memcpy(logp_M.mutable_data_ptr(), bytes.data(), bytes.size());
  return logp_M;
}

std::string samples_text(std::span<const rewards::Sample> samples) {
  Json list = Json::array();
  for (const rewards::Sample& s : samples)
    list.push_back({{"row", s.row ? *s.row : Json()},
                    {"where", s.where},
                    {"prompt_tokens", s.prompt_tokens},
                    {"completion_tokens", s.completion_tokens},
                    {"images", images_json(s.images)},
                    {"prompt", s.prompt},
                    {"completion", s.completion},
                    {"has_text", s.has_text},
                    {"truncated", s.truncated},
                    {"max_new_tokens", s.max_new_tokens},
                    {"closing_tokens", s.closing_tokens}});
  return dump_json(list);
}

std::vector<rewards::Sample> parse_samples(const std::string& text,
                                           const data::ImageFormat* images) {
  std::vector<rewards::Sample> samples;
  for (const Json& json : parse_json(text, kWhere)) {
    rewards::Sample s;
    s.row = std::make_shared<const Json>(member<Json>(json, "row"));
    s.where = member<std::string>(json, "where");
    s.prompt_tokens = member<std::vector<int32_t>>(json, "prompt_tokens");
    s.completion_tokens = member<std::vector<int32_t>>(json, "completion_tokens");
    s.images = parse_images(member<Json>(json, "images"), images,
                            std::ssize(s.prompt_tokens) + std::ssize(s.completion_tokens));
    s.prompt = member<std::string>(json, "prompt");
    s.completion = member<std::string>(json, "completion");
    s.has_text = member<bool>(json, "has_text");
    s.truncated = member<bool>(json, "truncated");
    s.max_new_tokens = member<int64_t>(json, "max_new_tokens");
    s.closing_tokens = member<std::vector<int32_t>>(json, "closing_tokens");
    samples.push_back(std::move(s));
  }
  return samples;
}

std::string verdicts_text(std::span<const rewards::Verdict> verdicts) {
  Json list = Json::array();
  for (const rewards::Verdict& v : verdicts)
    list.push_back({{"kind", static_cast<int>(v.kind)}, {"value", v.value}, {"detail", v.detail}});
  return dump_json(list);
}

std::vector<rewards::Verdict> parse_verdicts(const std::string& text, size_t count) {
  std::vector<rewards::Verdict> verdicts;
  for (const Json& json : parse_json(text, kWhere)) {
    const int kind = member<int>(json, "kind");
    check<DataError>(kind >= 0 && kind <= static_cast<int>(rewards::Verdict::Kind::kMalformed),
                     kWhere, ": a verdict of no kind");
    verdicts.push_back({static_cast<rewards::Verdict::Kind>(kind), member<double>(json, "value"),
                        member<std::string>(json, "detail")});
  }
  check<DataError>(verdicts.size() == count, kWhere, ": ", verdicts.size(), " verdicts of ", count,
                   " samples");
  return verdicts;
}

std::string end_text(const train::RunOutcome& outcome) {
  return dump_json({{"interrupted", outcome.interrupted}, {"steps", outcome.steps}});
}

train::RunOutcome parse_end(const std::string& text) {
  const Json json = parse_json(text, kWhere);
  return {member<bool>(json, "interrupted"), member<int64_t>(json, "steps")};
}

}  // namespace temper::workers
