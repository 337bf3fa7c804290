#include "temper/text/jinja/sequences.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
// The indices start, start + step, ... that a slice takes of a sequence of n elements.
struct Indices {
  int64_t start = 0, step = 1, count = 0;
};

Indices slice_indices(int64_t n, std::optional<int64_t> start, std::optional<int64_t> stop,
                      int64_t step) {
  if (step == 0) throw Failure("slice step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto clip = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    int64_t b = *bound;
    if (b < 0) b = b < -n ? low : b + n;  // b + n may be -1, which a negative step stops at
    return std::clamp(b, low, high);
  };
  const int64_t from = clip(start, step > 0 ? low : high);
  const int64_t to = clip(stop, step > 0 ? high : low);
  Indices indices{from, step, 0};
  // Differences are within n, so one more step cannot overflow when it is compared before it is
  // taken.
  const int64_t distance = step > 0 ? to - from : from - to;
  if (distance > 0) {
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    indices.count = static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1;
  }
  return indices;
}

template <class Take>
void for_each_index(const Indices& indices, Take take) {
  int64_t index = indices.start;
  for (int64_t i = 0; i < indices.count; ++i) {
    take(index);
    if (i + 1 < indices.count) index += indices.step;
  }
}
}  // namespace

std::optional<Value> element(const Value& sequence, int64_t index) {
  const auto n = length_of(sequence);
  if (!n) return std::nullopt;
  const auto size = static_cast<int64_t>(*n);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  const auto i = static_cast<size_t>(index);
  if (const Values* items = sequence.elements()) return (*items)[i];
  if (const auto* range = sequence.object<Range>()) return Value(range->at(index));
  if (!sequence.is_string()) return std::nullopt;
  const std::string& text = sequence.text();
  const size_t start = byte_of_code_point(text, i);
  size_t end = start;
  next_code_point(text, end);
  return Value(text.substr(start, end - start), sequence.is_markup());
}

Value slice(const Value& sequence, std::optional<int64_t> start, std::optional<int64_t> stop,
            int64_t step) {
  if (const auto* undefined = sequence.get_if<Undefined>()) throw Failure(*undefined->message);
  const auto* range = sequence.object<Range>();
  if (!sequence.elements() && !sequence.is_string() && !range) {
    throw Failure(str("'", type_name(sequence), "' object is not subscriptable by a slice"));
  }
  const auto n = static_cast<int64_t>(*length_of(sequence));
  const Indices indices = slice_indices(n, start, stop, step);
  if (const Values* items = sequence.elements()) {
    Values taken;
    for_each_index(indices, [&](int64_t i) { taken.push_back((*items)[static_cast<size_t>(i)]); });
    return sequence.is<List>() ? make_list(std::move(taken)) : make_tuple(std::move(taken));
  }
  if (range) {
    if (indices.count == 0) return Value(std::make_shared<Range>(0, 0, 1));
    const int64_t first = range->at(indices.start);
    const int64_t stride = indices.count > 1 ? range->step() * step : 1;
    const int64_t last = first + stride * (indices.count - 1);
    return Value(std::make_shared<Range>(first, stride > 0 ? last + 1 : last - 1, stride));
  }
  const auto chars = characters(sequence.text());
  std::string taken;
  for_each_index(indices, [&](int64_t i) { taken += chars[static_cast<size_t>(i)]; });
  return Value(std::move(taken), sequence.is_markup());
}

Value repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t unit = sequence.is_string() ? sequence.text().size() : sequence.elements()->size();
  if (unit == 0 || times == 0) {
    if (sequence.is_string()) return Value(std::string(), sequence.is_markup());
    return sequence.is<List>() ? make_list({}) : make_tuple({});
  }
  size_t total = 0, bytes = 0;
  const size_t unit_bytes = sequence.is_string() ? 1 : sizeof(Value);
  if (__builtin_mul_overflow(unit, times, &total) ||
      __builtin_mul_overflow(total, unit_bytes, &bytes)) {
    throw OverBudget("rendering takes too much memory");
  }
  runtime.charge(sequence.is_string() ? total / 16 : total, bytes);
  if (sequence.is_string()) {
    std::string out;
    out.reserve(total);
    for (size_t i = 0; i < times; ++i) out += sequence.text();
    return Value(std::move(out), sequence.is_markup());
  }
  Values out;
  out.reserve(total);
  for (size_t i = 0; i < times; ++i)
    out.insert(out.end(), sequence.elements()->begin(), sequence.elements()->end());
  return sequence.is<List>() ? make_list(std::move(out)) : make_tuple(std::move(out));
}

size_t length_cost(const Value& value) {
  if (value.is_string()) return value.text().size() / 16;
  return length_of(value).value_or(0);
}

}  // namespace temper::jinja
