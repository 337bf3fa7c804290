// Filters that compare elements: by an attribute where one is named, and without regard to case
// unless asked.
#include <algorithm>
#include <bit>

#include "temper/base/error.h"
#include "temper/text/jinja/filters/filter_functions.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja::filters {
namespace {
struct Keyed {
  Value key, value;
};

// A stable sort; the work of all its comparisons is charged before.
void sort_by_key(Runtime& runtime, std::vector<Keyed>& items, bool descending) {
  size_t total = 0;
  for (const Keyed& item : items) total = saturating_add(total, weight(item.key));
  for (int rounds = std::bit_width(items.size()); rounds > 0; --rounds) runtime.charge(total);
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return descending ? less(b.key, a.key) : less(a.key, b.key);
  });
}

Values values_of(std::vector<Keyed> items) {
  Values values;
  for (Keyed& item : items) values.push_back(std::move(item.value));
  return values;
}

Value folded(const Value& key, bool case_sensitive) {
  return case_sensitive ? key : without_case(key);
}

Value extreme(Runtime& runtime, const Value& input, Arguments arguments, bool largest) {
  const Bound bound("min/max", std::move(arguments), {"case_sensitive", "attribute"});
  const AttributePath path(bound.get(1, None{}));
  const bool case_sensitive = bound.flag(0, false);
  std::optional<Keyed> best;
  for (const Value& item : runtime.items_of(input)) {
    Value key = folded(path.get(runtime, item), case_sensitive);
    if (best) runtime.charge(std::min(weight(key), weight(best->key)));
    if (!best || (largest ? less(best->key, key) : less(key, best->key)))
      best = Keyed{std::move(key), item};
  }
  return best ? best->value : make_undefined("No aggregated item, sequence was empty.");
}
}  // namespace

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  for (std::string& part : split_text(attribute.text(), ".", -1, false)) {
    const bool is_index =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(is_index ? Value(*parse_integer(part, 10)) : Value(std::move(part)));
  }
  if (parts_.size() > 100) throw Failure("attribute path too long");
}

Value AttributePath::get(Runtime& runtime, Value value, const Value* fallback) const {
  for (const Value& part : parts_) {
    runtime.charge(1);
    value = runtime.item(value, part);
    if (fallback && value.is_undefined()) value = *fallback;
  }
  return value;
}

std::vector<AttributePath> attribute_paths(const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    paths.emplace_back(attribute);
    return paths;
  }
  for (std::string& path : split_text(attribute.text(), ",", -1, false))
    paths.emplace_back(Value(std::move(path)));
  if (paths.size() > 100) throw Failure("too many attributes");
  return paths;
}

Value without_case(const Value& value) {
  return value.is_string() ? Value(to_lower(value.text())) : value;
}

Value sort(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  const auto paths = attribute_paths(bound.get(2, None{}));
  const bool case_sensitive = bound.flag(1, false);
  std::vector<Keyed> items;
  for (Value& item : runtime.items_of(input)) {
    Values key;
    for (const AttributePath& path : paths)
      key.push_back(folded(path.get(runtime, item), case_sensitive));
    items.push_back({make_list(std::move(key)), std::move(item)});
  }
  sort_by_key(runtime, items, bound.flag(0, false));
  return make_list(values_of(std::move(items)));
}

Value dict_sort(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value")
    throw Failure("You can only sort by either \"key\" or \"value\"");
  const auto* dict = input.get_if<Dict>();
  if (!dict) throw Failure(str("dictsort takes a dict, not ", type_name(input)));
  std::vector<Keyed> items;
  for (const auto& [key, value] : dict->data->pairs) {
    items.push_back(
        {folded(by == "key" ? key : value, bound.flag(0, false)), make_tuple({key, value})});
  }
  sort_by_key(runtime, items, bound.flag(2, false));
  return make_list(values_of(std::move(items)));
}

Value unique(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("unique", std::move(arguments), {"case_sensitive", "attribute"});
  const AttributePath path(bound.get(1, None{}));
  Values kept;
  Pairs seen;  // key -> the item that came first with it
  std::optional<std::string> failure;
  try {
    for (const Value& item : runtime.items_of(input)) {
      Value key = folded(path.get(runtime, item), bound.flag(0, false));
      runtime.charge(weight(key), sizeof(Value));
      hash(key);
      seen.emplace_back(std::move(key), item);
    }
  } catch (const OverBudget&) {
    throw;
  } catch (const Failure& e) {
    failure = e.what();
  }
  // A dict keeps the first place of each key; its values are the last, so they are looked up by
  // place instead.
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < seen.size(); ++i) order.emplace_back(hash(seen[i].first), i);
  std::sort(order.begin(), order.end());
  std::vector<bool> repeated(seen.size());
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size() && order[j].first == order[i].first; ++j) {
      runtime.charge(1);
      if (equal(seen[order[i].second].first, seen[order[j].second].first))
        repeated[order[j].second] = true;
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!repeated[i]) kept.push_back(seen[i].second);
  }
  return Value(std::make_shared<Iterator>(std::move(kept), std::move(failure)));
}

Value min(Runtime& runtime, Value input, Arguments arguments) {
  return extreme(runtime, input, std::move(arguments), false);
}
Value max(Runtime& runtime, Value input, Arguments arguments) {
  return extreme(runtime, input, std::move(arguments), true);
}

Value group_by(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("groupby", std::move(arguments), {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(bound[0]);
  const Value* fallback = bound.has(1) && !bound[1].is_none() ? &bound[1] : nullptr;
  std::vector<Keyed> items;
  for (Value& item : runtime.items_of(input)) {
    Value key = folded(path.get(runtime, item, fallback), bound.flag(2, false));
    items.push_back({std::move(key), std::move(item)});
  }
  sort_by_key(runtime, items, false);
  Values groups;
  for (size_t i = 0; i < items.size();) {
    Values members;
    const size_t start = i;
    for (; i < items.size() && equal(items[i].key, items[start].key); ++i)
      members.push_back(items[i].value);
    // The group is called by its first member's own spelling.
    Value grouper = path.get(runtime, members[0], fallback);
    groups.push_back(make_group(std::move(grouper), make_list(std::move(members))));
  }
  return make_list(std::move(groups));
}

}  // namespace temper::jinja::filters
