#include <filesystem>
#include "temper/base/error.h"
#include <nlohmann/json.hpp>
#include "temper/text/conversation.h"
namespace temper {
bool ChatTemplate::exists(const std::string&) { return false; }
ChatTemplate ChatTemplate::load(const std::string&) { throw DataError("no chat templates yet"); }
std::string ChatTemplate::render(const Json&, const Json&, bool) const { return {}; }
TokenizedConversation tokenize_conversation(const Tokenizer&, const ChatTemplate&, const Json&, const Json&, TrainOn, bool) { return {}; }
TokenizedConversation tokenize_prompt_completion(const Tokenizer& t, std::string_view p, std::string_view c, TrainOn on, std::optional<int32_t> eos) {
  TokenizedConversation out; out.text = std::string(p) + std::string(c); out.tokens = t.encode(p); const size_t n = out.tokens.size();
  auto rest = t.encode(c); if (eos && (rest.empty() || rest.back() != *eos)) rest.push_back(*eos);
  out.tokens.insert(out.tokens.end(), rest.begin(), rest.end()); out.labels = out.tokens;
  if (on != TrainOn::kAll) std::fill(out.labels.begin(), out.labels.begin() + n, -100);
  return out; }
TokenizedConversation tokenize_prompt_completion(const Tokenizer&, const ChatTemplate&, const Json&, const Json&, const Json&, TrainOn) { return {}; }
}
