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

// auto: of messages the assistant's turns, of a prompt and completion the completion.
enum class TrainOn { kAuto, kAll, kCompletion, kAssistant };

// The text is rendered and encoded once. Trained is what the template's {% generation %} blocks wrote or, where it has none,
// what each assistant message adds: message i trains what rendering messages[0..i] adds to rendering messages[0..i) with the
// generation prompt, its end of turn and whatever the template writes after that included. Both must be prefixes of the
// whole text: a template that writes earlier turns differently once later ones follow is a DataError that names the
// message. kCompletion trains the last assistant turn alone. A token is trained when its first byte lies in a trained span.
TokenizedConversation tokenize_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat, const Json& messages,
                                            const Json& tools, TrainOn train_on, bool add_generation_prompt = false);

// Prompt and completion are encoded apart; `eos` is appended where the completion does not end with it.
TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt,
                                                 std::string_view completion, TrainOn train_on, std::optional<int32_t> eos);
// As messages: the prompt's rendering with the generation prompt must be a prefix of the whole.
TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                 const Json& prompt_messages, const Json& completion_messages,
                                                 const Json& tools, TrainOn train_on);

}  // namespace temper
