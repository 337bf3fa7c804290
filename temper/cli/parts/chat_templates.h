// The chat templates of a model and of its adapters.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/cli/parts/options.h"
#include "temper/text/chat/chat_template.h"

namespace temper::cli {

class ChatTemplates {
 public:
  explicit ChatTemplates(const ModelFlags& flags);
  // By the numbers of adapter_of: the adapter's own where its directory has one, else the model's,
  // which is one object for all of them; null where there is none. Read when it is first asked for.
  // Throws DataError.
  std::shared_ptr<const ChatTemplate> of(int adapter);
  // Makes templates write the date of this call, unless --template-date gave one.
  void read_date();

 private:
  std::string model_;
  jinja::RenderOptions render_;
  std::vector<std::string> adapters_;                          // directories; empty: none
  std::map<int, std::shared_ptr<const ChatTemplate>> loaded_;  // -1: the model's
};

}  // namespace temper::cli
