#include "temper/base/config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "temper/base/error.h"

namespace temper {
namespace {
constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxYamlDepth = 32;
constexpr size_t kMaxNodes = 100000;  // nodes of a document; each alias counts as a copy
constexpr int kMaxAliases = 64;

size_t count_nodes(const YamlNode& node) {
  size_t count = 1;
  for (const YamlNode& item : node.items) count += count_nodes(item);
  for (const YamlNode::Entry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

// Builds the tree from yaml-cpp's events, and stops its recursion by throwing where a bound is
// passed.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::shared_ptr<const std::string> source, bool whole_source)
      : source_(std::move(source)), whole_source_(whole_source) {}

  YamlNode take() { return std::move(root_); }

  YamlOrigin origin(const YAML::Mark& mark) const {
    return {source_, whole_source_ ? 0 : mark.line + 1};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    check<ConfigError>(++documents_ == 1, origin(mark).str(),
                       ": a second YAML document; expected one a file (remove the \"---\")");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check<ConfigError>(!expects_key(), origin(mark).str(), ": expected a key before \":\"");
    YamlNode node;
    node.origin = origin(mark);
    complete(std::move(node), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    if (expects_key()) return begin_entry(mark, value);
    YamlNode node = YamlNode::scalar(value, tag == "!");
    node.origin = origin(mark);
    complete(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const std::string where = origin(mark).str();
    check<ConfigError>(!expects_key(), where, ": an alias cannot be a key");
    check<ConfigError>(++aliases_ <= kMaxAliases, where, ": more than ", kMaxAliases, " aliases");
    const auto found = anchors_.find(anchor);
    check<ConfigError>(found != anchors_.end(), where, ": an alias inside of its own anchor");
    spend(mark, count_nodes(found->second));
    complete(found->second, 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor;
    bool has_key = false;  // in a map: the last entry's key is read, its value is not
  };

  bool expects_key() const {
    return !open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap &&
           !open_.back().has_key;
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    check<ConfigError>(tag.empty() || tag == "?" || tag == "!", origin(mark).str(), ": the tag ",
                       tag, "; tags have no meaning here, remove it");
  }

  void spend(const YAML::Mark& mark, size_t nodes) {
    nodes_ += nodes;
    check<ConfigError>(nodes_ <= kMaxNodes, origin(mark).str(), ": more than ", kMaxNodes,
                       " values");
  }

  void begin_entry(const YAML::Mark& mark, const std::string& key) {
    YamlNode& map = open_.back().node;
    for (const YamlNode::Entry& entry : map.entries)
      check<ConfigError>(entry.key != key, origin(mark).str(), ": the key \"", key,
                         "\" a second time; the first is at ", entry.origin.str());
    check<ConfigError>(key != "<<", origin(mark).str(),
                       ": merge keys (\"<<\") are not supported; give several config files "
                       "instead, later ones win");
    spend(mark, 1);
    map.entries.push_back({key, origin(mark), {}, {}});
    open_.back().has_key = true;
  }

  void begin(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    refuse_tag(mark, tag);
    check<ConfigError>(!expects_key(), origin(mark).str(),
                       ": a key must be text, found a list or a map; is every bracket closed?");
    check<ConfigError>(open_.size() < kMaxYamlDepth, origin(mark).str(), ": nested deeper than ",
                       kMaxYamlDepth, " levels");
    YamlNode node;
    node.kind = kind;
    node.origin = origin(mark);
    open_.push_back({std::move(node), anchor});
  }

  void end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    complete(std::move(done.node), done.anchor);
  }

  void complete(YamlNode node, YAML::anchor_t anchor) {
    YAML::Mark mark;
    mark.line = node.origin.line - 1;
    spend(mark, 1);
    if (anchor != 0) {
      spend(mark, count_nodes(node));
      anchors_[anchor] = node;
    }
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (Open& parent = open_.back(); parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else {
      parent.node.entries.back().value = std::move(node);
      parent.has_key = false;
    }
  }

  std::shared_ptr<const std::string> source_;
  bool whole_source_;
  YamlNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
  int documents_ = 0;
  int aliases_ = 0;
  size_t nodes_ = 0;
};

// yaml-cpp takes byte 4 for the end of its input, and YAML allows no control character but these.
void refuse_control_characters(std::string_view text, const TreeBuilder& builder) {
  YAML::Mark mark;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    check<ConfigError>((byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\r' || c == '\t',
                       builder.origin(mark).str(), ": byte ", static_cast<int>(byte),
                       " is not allowed in YAML; expected UTF-8 text");
    if (c == '\n') ++mark.line;
  }
}

}  // namespace

std::string YamlOrigin::str() const {
  if (!source) return "config";
  return line > 0 ? temper::str(*source, ":", line) : *source;
}

YamlNode::YamlNode() = default;
YamlNode::YamlNode(const YamlNode&) = default;
YamlNode::YamlNode(YamlNode&&) noexcept = default;
YamlNode& YamlNode::operator=(const YamlNode&) = default;
YamlNode& YamlNode::operator=(YamlNode&&) noexcept = default;
YamlNode::~YamlNode() = default;

YamlNode YamlNode::null() { return {}; }

YamlNode YamlNode::scalar(std::string text, bool quoted) {
  YamlNode node;
  node.kind = Kind::kScalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

YamlNode YamlNode::list(std::vector<YamlNode> items) {
  YamlNode node;
  node.kind = Kind::kList;
  node.items = std::move(items);
  return node;
}

YamlNode YamlNode::map() {
  YamlNode node;
  node.kind = Kind::kMap;
  return node;
}

const YamlNode* YamlNode::find(std::string_view key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

YamlNode* YamlNode::find(std::string_view key) {
  return const_cast<YamlNode*>(static_cast<const YamlNode&>(*this).find(key));
}

YamlNode parse_yaml(std::string_view text, std::string source, bool whole_source) {
  const auto shared_source = std::make_shared<const std::string>(std::move(source));
  check<ConfigError>(text.size() <= kMaxBytes, *shared_source, ": ", text.size(),
                     " bytes; a config has at most ", kMaxBytes);
  TreeBuilder builder(shared_source, whole_source);
  refuse_control_characters(text, builder);
  // yaml-cpp closes a quote that is still open where the text ends with a newline, and so swallows
  // all keys after it without a word; the comment makes it an error.
  std::istringstream stream(std::string(text) + "\n#");
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) continue;
  } catch (const YAML::Exception& e) {
    if (e.mark.is_null()) throw ConfigError(str(*shared_source, ": not valid YAML: ", e.msg));
    YAML::Mark mark = e.mark;
    const auto newlines =
        std::count(text.begin(), text.end(), '\n') - (text.ends_with('\n') ? 1 : 0);
    mark.line = std::min(mark.line, static_cast<int>(std::max<std::ptrdiff_t>(newlines, 0)));
    throw ConfigError(str(builder.origin(mark).str(), ": not valid YAML: ", e.msg));
  }
  YamlNode root = builder.take();
  if (!root.origin.source) root.origin.source = shared_source;
  return root;
}

void merge_yaml(YamlNode& base, YamlNode over) {
  if (base.kind != YamlNode::Kind::kMap || over.kind != YamlNode::Kind::kMap) {
    base = std::move(over);
    return;
  }
  for (YamlNode::Entry& entry : over.entries) {
    if (YamlNode* value = base.find(entry.key))
      merge_yaml(*value, std::move(entry.value));
    else
      base.entries.push_back(std::move(entry));
  }
}

}  // namespace temper
