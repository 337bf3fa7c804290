#include "temper/text/tokenizer/post_processor.h"

#include <algorithm>

#include "temper/text/tokenizer/vocabulary.h"

namespace temper {
namespace {
constexpr size_t kMaxTemplates = 4, kMaxTemplate = 256;
}  // namespace

void PostProcessor::add(const JsonField& field) {
  const std::string type = field.type();
  if (type == "Sequence") {
    for (const JsonField& item : field["processors"].items()) add(item);
  } else if (type == "TemplateProcessing") {
    add_template(field);
  } else if (type != "ByteLevel") {
    field.unsupported("post_processor");
  }
}

void PostProcessor::add_template(const JsonField& field) {
  std::vector<int32_t> out;
  size_t texts = 0;
  for (const JsonField& item : field["single"].items()) {
    if (const auto sequence = item.find("Sequence")) {
      if ((*sequence)["id"].text() != "A") sequence->fail("only sequence \"A\" is one text");
      out.push_back(kText);
      ++texts;
      continue;
    }
    const JsonField name = item["SpecialToken"]["id"];
    for (const JsonField& id : field["special_tokens"][name.text()]["ids"].items())
      out.push_back(static_cast<int32_t>(id.integer(0, Vocabulary::kMaxId)));
  }
  if (texts > 1 || out.size() > kMaxTemplate || templates_.size() == kMaxTemplates)
    field.fail("a template with one text and a few special tokens expected");
  templates_.push_back(std::move(out));
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids) const {
  for (const auto& items : templates_) {
    std::vector<int32_t> out;
    out.reserve(ids.size() + items.size());
    for (const int32_t item : items) {
      if (item == kText) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else {
        out.push_back(item);
      }
    }
    ids = std::move(out);
  }
  return ids;
}

// Processes a text of one marker token, and cuts the result before the marker.
std::vector<int32_t> PostProcessor::before() const {
  std::vector<int32_t> ids = apply({kText});
  ids.erase(std::find(ids.begin(), ids.end(), kText), ids.end());
  return ids;
}

std::vector<int32_t> PostProcessor::after() const {
  std::vector<int32_t> ids = apply({kText});
  const auto text = std::find(ids.begin(), ids.end(), kText);
  if (text == ids.end()) return {};
  return {text + 1, ids.end()};
}

}  // namespace temper
