#include "temper/cli/parts/chat_templates.h"

namespace temper::cli {

ChatTemplates::ChatTemplates(const ModelFlags& flags)
    : model_(flags.model), render_(render_options(flags.template_date)), adapters_{flags.adapter} {
  for (const NamedAdapter& named : flags.named) adapters_.push_back(named.directory);
}

std::shared_ptr<const ChatTemplate> ChatTemplates::of(int adapter) {
  if (const auto found = loaded_.find(adapter); found != loaded_.end()) return found->second;
  std::shared_ptr<const ChatTemplate> chat;
  ChatOptions options;
  options.render = render_;
  if (adapter >= 0) options.adapter = adapters_.at(static_cast<size_t>(adapter));
  if (adapter >= 0 && !ChatTemplate::has_own(model_, options.adapter))
    chat = of(-1);
  else
    chat = ChatTemplate::find(model_, options);
  loaded_[adapter] = chat;
  return chat;
}

void ChatTemplates::read_date() {
  for (auto& [adapter, chat] : loaded_)
    if (chat) chat = std::make_shared<const ChatTemplate>(chat->at_now());
}

}  // namespace temper::cli
