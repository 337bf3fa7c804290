#include "temper/distill/top_tokens.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/distill/reading.h"

namespace temper::distill {
namespace {

constexpr int64_t kPassTokens = 8192;  // of a pass of several trees

template <class T>
T top_member(const Json& json, const char* key) {
  try {
    return json.at(key).get<T>();
  } catch (const Json::exception&) {
    throw DataError(str("`", key, "`: it is missing, or has the wrong type"));
  }
}

struct TreesOfPass {
  std::shared_ptr<Forest> forest;
  int64_t first_token;
};

std::shared_ptr<Forest> forest_of_request(const std::vector<std::vector<int32_t>>& segments,
                                          const std::vector<int64_t>& parent, int64_t vocabulary,
                                          int64_t most_positions) {
  std::shared_ptr<Forest> forest;
  try {
    forest = forest_of(segments, parent);
  } catch (const DataError& e) {
    throw DataError(str("`tokens` and `parent`: ", e.what()));
  }
  for (const int32_t id : forest->tokens)
    check<DataError>(id >= 0 && id < vocabulary, "`tokens`: found ", id,
                     ", and the vocabulary has ", vocabulary, " tokens");
  for (const int64_t position : forest->position)
    check<DataError>(position < most_positions, "`tokens`: a row has more than the model's ",
                     most_positions, " positions");
  return forest;
}

std::vector<TreesOfPass> passes_of(const Forest& all) {
  std::vector<TreesOfPass> passes;
  int64_t begin = 0, end = 0;
  const auto close = [&] {
    if (begin < end) passes.push_back({trees_of(all, begin, end), begin});
    begin = end;
  };
  for (int64_t root = 0; root < all.num_segments();
       root = all.subtree_end[static_cast<size_t>(root)]) {
    const int64_t next =
        all.segment_start[static_cast<size_t>(all.subtree_end[static_cast<size_t>(root)])];
    if (next - begin > kPassTokens) close();
    end = next;
  }
  close();
  return passes;
}

}  // namespace

std::string top_tokens_body(const train::ForwardPass& pass, int64_t top_k) {
  const Forest& f = *pass.forest;
  Json segments = Json::array();
  for (size_t s = 0; s < f.parent.size(); ++s)
    segments.push_back(std::vector<int32_t>(f.tokens.begin() + f.segment_start[s],
                                            f.tokens.begin() + f.segment_start[s + 1]));
  return dump_json({{"tokens", std::move(segments)},
                    {"parent", f.parent},
                    {"places", pass.row_M},
                    {"top_k", top_k}});
}

TopTokensAsk parse_top_tokens(std::string_view body, int64_t vocabulary, int64_t most_positions) {
  const Json json = parse_json(body, "the request");
  check<DataError>(json.is_object(), "the request is not a JSON object");
  const auto segments = top_member<std::vector<std::vector<int32_t>>>(json, "tokens");
  const auto parent = json.contains("parent") ? top_member<std::vector<int64_t>>(json, "parent")
                                              : std::vector<int64_t>(segments.size(), -1);
  check<DataError>(parent.size() == segments.size(), "`parent`: found ", parent.size(),
                   " numbers for ", segments.size(), " segments of `tokens`");
  TopTokensAsk ask;
  ask.pass.forest = forest_of_request(segments, parent, vocabulary, most_positions);
  const std::shared_ptr<Forest>& forest = ask.pass.forest;
  ask.pass.row_M = top_member<std::vector<int64_t>>(json, "places");
  for (const int64_t row : ask.pass.row_M)
    check<DataError>(row >= 0 && row < forest->num_tokens(), "`places`: found ", row, ", and ",
                     forest->num_tokens(), " tokens");
  ask.top_k = top_member<int64_t>(json, "top_k");
  check<DataError>(ask.top_k >= 1 && ask.top_k <= vocabulary, "`top_k`: found ", ask.top_k,
                   ", expected 1 to ", vocabulary);
  const double bytes =
      8.0 * static_cast<double>(ask.pass.row_M.size()) * static_cast<double>(ask.top_k);
  check<DataError>(bytes <= static_cast<double>(kMostTopBytes),
                   "`places` times `top_k`: ", static_cast<int64_t>(bytes),
                   " bytes of answer, expected at most ", kMostTopBytes,
                   "; ask for fewer tokens at once");
  return ask;
}

ops::TopTokens likeliest_of(models::CausalLM& model, const TopTokensAsk& ask) {
  const at::NoGradGuard no_grad;
  const auto places = static_cast<int64_t>(ask.pass.row_M.size());
  ops::TopTokens top{at::empty({places, ask.top_k}, at::kLong),
                     at::empty({places, ask.top_k}, at::kFloat)};
  const auto row_of = [&](int64_t place) { return ask.pass.row_M[static_cast<size_t>(place)]; };
  std::vector<int64_t> by_row(ask.pass.row_M.size());  // numbers of places
  std::iota(by_row.begin(), by_row.end(), 0);
  std::ranges::stable_sort(by_row, {}, row_of);
  auto next = by_row.begin();
  for (const TreesOfPass& trees : passes_of(*ask.pass.forest)) {
    train::ForwardPass pass;
    pass.forest = trees.forest;
    const int64_t end = trees.first_token + trees.forest->num_tokens();
    std::vector<int64_t> numbers;
    for (; next != by_row.end() && row_of(*next) < end; ++next) numbers.push_back(*next);
    if (numbers.empty()) continue;
    std::ranges::sort(numbers);
    for (const int64_t i : numbers) pass.row_M.push_back(row_of(i) - trees.first_token);
    const Side side(model, {.forest = pass.forest, .rows = pass.rows()}, Tap::kNone, {});
    const ops::TopTokens found = ops::likeliest_tokens(head_at_targets(side, pass), 1, ask.top_k);
    const at::Tensor to = at::tensor(numbers, at::kLong);
    top.id.index_copy_(0, to, found.id.to(at::kCPU));
    top.logit.index_copy_(0, to, found.logit.to(at::kCPU));
  }
  check(at::isfinite(top.logit).all().item<bool>(),
        "the model's logits are not finite: its weights hold NaN or infinity, or overflow");
  return top;
}

std::string top_tokens_bytes(const ops::TopTokens& top) {
  const at::Tensor id = top.id.to(at::kInt).contiguous(), logit = top.logit.contiguous();
  std::string bytes(id.nbytes() + logit.nbytes(), '\0');
  std::memcpy(bytes.data(), id.const_data_ptr(), id.nbytes());
  std::memcpy(bytes.data() + id.nbytes(), logit.const_data_ptr(), logit.nbytes());
  return bytes;
}

ops::TopTokens parse_top_tokens_bytes(std::string_view bytes, int64_t count, int64_t top_k,
                                      int64_t vocabulary) {
  at::Tensor id = at::empty({count, top_k}, at::kInt),
             logit = at::empty({count, top_k}, at::kFloat);
  check<DataError>(bytes.size() == id.nbytes() + logit.nbytes(), "found ", bytes.size(),
                   " bytes, expected ", id.nbytes() + logit.nbytes(), ": the ", top_k,
                   " likeliest tokens at ", count, " places");
  std::memcpy(id.mutable_data_ptr(), bytes.data(), id.nbytes());
  std::memcpy(logit.mutable_data_ptr(), bytes.data() + id.nbytes(), logit.nbytes());
  if (count == 0) return {id.to(at::kLong), logit};
  const at::Tensor sorted = std::get<0>(id.sort(1));
  const bool distinct =
      !(sorted.narrow(1, 0, top_k - 1) == sorted.narrow(1, 1, top_k - 1)).any().item<bool>();
  check<DataError>(
      distinct && sorted.min().item<int64_t>() >= 0 && sorted.max().item<int64_t>() < vocabulary,
      "a place has the same token twice, or one outside of the vocabulary");
  check<DataError>(at::isfinite(logit).all().item<bool>(), "logits that are not finite");
  return {id.to(at::kLong), logit};
}

}  // namespace temper::distill
