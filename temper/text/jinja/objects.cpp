#include "temper/text/jinja/objects.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
int deepest(const Values& items) {
  int most = 0;
  for (const Value& item : items) most = std::max(most, nesting(item));
  return most;
}
}  // namespace

Bound::Bound(const char* function, Arguments arguments,
             std::initializer_list<const char*> parameters, size_t required)
    : function_(function), parameters_(parameters), values_(parameters.size()) {
  if (arguments.positional.size() > parameters_.size()) {
    throw Failure(str(function, "() takes at most ", parameters_.size(), " arguments, ",
                      arguments.positional.size(), " given"));
  }
  std::move(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (auto& named : arguments.named) {
    const std::string& name = named.first;
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) {
      throw Failure(str(function, "() got an unexpected keyword argument '", name, "'"));
    }
    auto& slot = values_[static_cast<size_t>(found - parameters_.begin())];
    if (slot) throw Failure(str(function, "() got multiple values for argument '", name, "'"));
    slot = std::move(named.second);
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) throw Failure(str(function, "() missing argument '", parameters_[i], "'"));
  }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!values_[i]) return fallback;
  if (!values_[i]->is_integral()) {
    throw Failure(str(function_, "(): '", parameters_[i], "' must be an integer, not ",
                      type_name(*values_[i])));
  }
  return values_[i]->integer();
}

std::string Bound::text(size_t i, const char* fallback) const {
  if (!values_[i]) return fallback;
  if (!values_[i]->is_string()) {
    throw Failure(str(function_, "(): '", parameters_[i], "' must be a string, not ",
                      type_name(*values_[i])));
  }
  return values_[i]->text();
}

Range::Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step) {
  constexpr int64_t kMost = 100'000;  // jinja2's MAX_RANGE
  if (step == 0) throw Failure("range() arg 3 must not be zero");
  const auto span =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const auto stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const auto length = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (length > kMost) throw Failure(str("range too big: the sandbox allows ", kMost, " items"));
  length_ = static_cast<int64_t>(length);
}

std::string Range::repr() const {
  return str("range(", start_, ", ", stop_, step_ == 1 ? "" : str(", ", step_), ")");
}

Iterator::Iterator(Values items, std::optional<std::string> failure)
    : items_(std::move(items)),
      failure_(std::move(failure)),
      nesting_(nesting_above(deepest(items_))) {}

bool Iterator::next(Value& item) {
  if (position_ < items_.size()) {
    item = items_[position_++];
    return true;
  }
  if (failure_) throw Failure(*std::exchange(failure_, std::nullopt));
  return false;
}

std::string View::type_name() const {
  return kind_ == Kind::kKeys ? "dict_keys" : kind_ == Kind::kValues ? "dict_values" : "dict_items";
}

Value View::at(size_t i) const {
  const auto& [key, value] = dict_.data->pairs[i];
  return kind_ == Kind::kKeys ? key : kind_ == Kind::kValues ? value : make_tuple({key, value});
}

std::string View::repr() const {
  std::string out = type_name() + "([";
  for (size_t i = 0; i < length(); ++i) out += (i ? ", " : "") + to_repr(at(i));
  return out + "])";
}

std::string Namespace::long_repr() const {
  Pairs pairs;
  for (const auto& [name, value] : attributes_) pairs.emplace_back(Value(name), value);
  return "<Namespace " + to_repr(make_dict(std::move(pairs))) + ">";
}

const Value* Namespace::find(const std::string& name) const {
  for (const auto& [key, value] : attributes_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(const std::string& name, Value value) {
  if (name.starts_with('_')) {
    throw Failure(str("a namespace cannot hold '", name,
                      "': names that begin with an underscore are refused"));
  }
  for (auto& [key, held] : attributes_) {
    if (key != name) continue;
    held = std::move(value);
    return;
  }
  attributes_.emplace_back(name, std::move(value));
}

size_t Namespace::total_weight() const {
  size_t total = 1;
  for (const auto& [name, value] : attributes_)
    total = saturating_add(total, jinja::weight(value) + 1);
  return total;
}

Cycler::Cycler(Values items) : items_(std::move(items)), nesting_(nesting_above(deepest(items_))) {
  if (items_.empty()) throw Failure("at least one item has to be provided");
}

Value Cycler::next() {
  const Value& value = items_[position_];
  position_ = (position_ + 1) % items_.size();
  return value;
}

Cursor::Cursor(Value source) : source_(std::move(source)) {
  if (!is_iterable(source_))
    throw Failure(str("'", type_name(source_), "' object is not iterable"));
}

bool Cursor::next(Value& item) {
  if (const Values* items = source_.elements()) {
    if (position_ >= items->size()) return false;
    item = (*items)[position_++];
    return true;
  }
  if (source_.is_string()) {
    const std::string& text = source_.text();
    if (position_ >= text.size()) return false;
    const size_t start = position_;
    next_code_point(text, position_);
    item = Value(text.substr(start, position_ - start));
    return true;
  }
  if (const auto* dict = source_.get_if<Dict>()) {
    if (position_ >= dict->data->pairs.size()) return false;
    item = dict->data->pairs[position_++].first;
    return true;
  }
  if (const auto* view = source_.object<View>()) {
    if (position_ >= view->length()) return false;
    item = view->at(position_++);
    return true;
  }
  if (const auto* range = source_.object<Range>()) {
    if (static_cast<int64_t>(position_) >= range->length()) return false;
    item = Value(range->at(static_cast<int64_t>(position_++)));
    return true;
  }
  if (auto* iterator = source_.object<Iterator>()) return iterator->next(item);
  if (auto* loop = source_.object<Loop>()) {
    Value inner;
    if (!loop->advance(inner)) return false;
    item = make_tuple({inner, source_});
    return true;
  }
  return false;  // Undefined
}

bool is_iterable(const Value& value) {
  return value.elements() || value.is_string() || value.is_dict() || value.is_undefined() ||
         value.object<View>() || value.object<Range>() || value.object<Iterator>() ||
         value.object<Loop>();
}

std::optional<size_t> length_of(const Value& value) {
  if (const Values* items = value.elements()) return items->size();
  if (value.is_string()) return count_code_points(value.text());
  if (const auto* dict = value.get_if<Dict>()) return dict->data->pairs.size();
  if (const auto* view = value.object<View>()) return view->length();
  if (const auto* range = value.object<Range>()) return static_cast<size_t>(range->length());
  if (auto* loop = value.object<Loop>()) return static_cast<size_t>(loop->length());
  if (value.is_undefined()) return 0;
  return std::nullopt;
}

Loop::Loop(const Value& iterable, Test test)
    : cursor_(iterable),
      test_(std::move(test)),
      nesting_(nesting_above(jinja::nesting(iterable) + 1)) {
  if (!test_) length_ = length_of(iterable);
}

bool Loop::fetch(Value& item) {
  if (rest_) {
    if (rest_position_ >= rest_->size()) return false;
    item = (*rest_)[rest_position_++];
    return true;
  }
  while (cursor_.next(item)) {
    if (!test_ || test_(item)) return true;
  }
  return false;
}

bool Loop::peek() {
  if (after_) return true;
  Value item;
  if (!fetch(item)) return false;
  after_ = std::move(item);
  return true;
}

bool Loop::advance(Value& item) {
  if (after_) {
    item = *std::exchange(after_, std::nullopt);
  } else if (!fetch(item)) {
    return false;
  }
  ++index0_;
  before_ = std::exchange(current_, item);
  return true;
}

// A loop may outlive its statement in a namespace; then it must neither run its test nor hold
// itself.
void Loop::end() {
  if (!rest_) rest_.emplace();
  test_ = nullptr;
  last_changed_.reset();
}

int64_t Loop::length() {
  if (!length_) {
    Values rest;
    for (Value item; fetch(item);) rest.push_back(item);
    length_ = rest.size() + static_cast<size_t>(index0_ + 1) + (after_ ? 1 : 0);
    rest_ = std::move(rest);
    rest_position_ = 0;
  }
  return static_cast<int64_t>(*length_);
}

Value Loop::previous() const {
  return before_ ? *before_ : make_undefined("there is no previous item");
}
Value Loop::next_item() { return peek() ? *after_ : make_undefined("there is no next item"); }

bool Loop::changed(Values values) {
  const auto same = [&] {
    return std::equal(values.begin(), values.end(), last_changed_->begin(), last_changed_->end(),
                      equal);
  };
  if (last_changed_ && same()) return false;
  last_changed_ = std::move(values);
  return true;
}

}  // namespace temper::jinja
