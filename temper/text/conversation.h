// Which tokens of a conversation are trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/text/chat_template.h"
#include "temper/text/tokenizer.h"

namespace temper {

struct TokenizedConversation {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // labels[i] == tokens[i] where trained, else -100
};
enum class TrainOn { kAuto, kAll, kCompletion, kAssistant };

TokenizedConversation tokenize_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat, const Json& messages,
                                            const Json& tools, TrainOn train_on, bool add_generation_prompt = false);
TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt,
                                                 std::string_view completion, TrainOn train_on, std::optional<int32_t> eos);
TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                 const Json& prompt_messages, const Json& completion_messages,
                                                 const Json& tools, TrainOn train_on);

}  // namespace temper
