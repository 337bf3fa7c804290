#include "temper/check/shown_row.h"

#include <algorithm>

namespace temper::checks {
namespace {

void append(ShownPath& path, const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels,
            const ImageSpans& images) {
  append_spans(path.images, images, std::ssize(path.tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    // The first token of all has nothing before it that could predict it.
    const bool trained = !path.tokens.empty() && i < labels.size() && labels[i] >= 0;
    path.tokens.push_back(tokens[i]);
    path.trained.push_back(trained);
  }
}

}  // namespace

std::vector<ShownPath> shown_paths(const data::SftRow& row) {
  std::vector<bool> has_child(row.segments.size());
  for (const data::Segment& segment : row.segments)
    if (segment.parent >= 0) has_child[static_cast<size_t>(segment.parent)] = true;
  std::vector<ShownPath> paths;
  for (size_t leaf = 0; leaf < row.segments.size(); ++leaf) {
    if (has_child[leaf]) continue;
    std::vector<size_t> chain;
    for (auto at = static_cast<int32_t>(leaf); at >= 0;
         at = row.segments[static_cast<size_t>(at)].parent)
      chain.push_back(static_cast<size_t>(at));
    std::reverse(chain.begin(), chain.end());
    ShownPath path;
    for (const size_t segment : chain)
      append(path, row.segments[segment].tokens, row.segments[segment].labels,
             row.segments[segment].images);
    paths.push_back(std::move(path));
  }
  for (size_t i = 0; paths.size() > 1 && i < paths.size(); ++i)
    paths[i].name = "turn " + std::to_string(i + 1);
  return paths;
}

std::vector<ShownPath> shown_paths(const data::PreferenceRow& row) {
  std::vector<ShownPath> paths;
  for (const data::Side side : {data::Side::kChosen, data::Side::kRejected}) {
    if (!row.has(side)) continue;
    ShownPath path{
        .name = side == data::Side::kChosen ? "chosen" : "rejected", .tokens = {}, .trained = {}};
    for (const bool prompt : {true, false}) {
      const data::TokenPath part = row.path(side, prompt);
      append(path, part.tokens, prompt ? std::vector<int32_t>() : part.labels, part.images);
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

std::vector<ShownPath> shown_paths(const data::PromptRow& row) {
  return {{"", row.tokens, std::vector<bool>(row.tokens.size()), row.images}};
}

}  // namespace temper::checks
