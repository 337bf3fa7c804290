#include "temper/ops/aten/kv_store.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "temper/base/error.h"
#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"
#include "temper/ops/aten/flash_attention.h"
#include "temper/ops/aten/heads.h"
#include "temper/ops/aten/padded_attention.h"
#include "temper/ops/aten/upload.h"

namespace temper::ops::aten_impl {
namespace {

// A pass. What all layers share is made once; layers of another window have batches of their own.
class AtenKvPass : public KvPass {
 public:
  AtenKvPass(const AtenKvStore& store, std::span<const CachedSequence> sequences,
             const Forest& forest);
  at::Tensor attend(int64_t layer, const AttentionSpec& spec, const RotaryTable& rotary,
                    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;

 private:
  // Rows of one sequence on its pages [first_page, first_page + num_pages).
  struct Reading {
    int64_t row, rows;
    const std::vector<int64_t>* pages;
    int64_t first_page, num_pages;
  };
  std::vector<Reading> readings(const AttentionSpec& spec) const;
  bool opens(const AttentionSpec& spec) const { return !spec.causal && !open_.empty(); }
  // Of the keys that rows of a reading see.
  int64_t end_of(const Reading& reading, bool open) const;
  PaddedBatch batch(const std::vector<Reading>& readings, bool open) const;
  const std::vector<PaddedBatch>& batches(const AttentionSpec& spec) const;
  RotaryRows rotary_of(const RotaryTable& table) const;
  // Whether flash kernels may read the pages in this layer.
  bool reads_pages(const AttentionSpec& spec) const;
  const PagedFlashBatch& paged_batch() const;

  struct Sequence {
    std::vector<int64_t> pages;
    int64_t first_row, rows;
  };
  struct Shape {
    int64_t window, heads;
    bool open;
    std::vector<PaddedBatch> batches;
  };
  const AtenKvStore& store_;
  int64_t page_tokens_;
  std::vector<Sequence> sequences_;
  std::vector<int64_t> host_position_;
  std::vector<OpenSpan> open_;
  at::Tensor position_, slot_;  // [rows]
  bool packed_ = true;          // sequences have the batch's rows in order, and all of them
  mutable std::optional<PagedFlashBatch> paged_batch_;
  // Kept by pointer: what is handed out must not move.
  mutable std::vector<std::unique_ptr<Shape>> shapes_;
  mutable std::vector<std::unique_ptr<std::pair<RotaryTable, RotaryRows>>> rotary_;
};

AtenKvPass::AtenKvPass(const AtenKvStore& store, std::span<const CachedSequence> sequences,
                       const Forest& forest)
    : store_(store),
      page_tokens_(store.page_tokens()),
      host_position_(forest.position),
      open_(forest.open) {
  const std::vector<int64_t>& position = host_position_;
  std::vector<int64_t> slot(position.size(), 0);
  int64_t next = 0;
  for (const CachedSequence& s : sequences) {
    if (s.rows == 0) continue;
    packed_ = packed_ && s.first_row == next;
    next = s.first_row + s.rows;
    sequences_.push_back({{s.pages.begin(), s.pages.end()}, s.first_row, s.rows});
    for (int64_t row = s.first_row; row < s.first_row + s.rows; ++row) {
      const int64_t at = position[static_cast<size_t>(row)], page = at / page_tokens_;
      check(page < static_cast<int64_t>(s.pages.size()), "a cached sequence has ", s.pages.size(),
            " pages, its position ", at, " none");
      slot[static_cast<size_t>(row)] =
          s.pages[static_cast<size_t>(page)] * page_tokens_ + at % page_tokens_;
    }
  }
  const auto rows = static_cast<int64_t>(position.size());
  packed_ = packed_ && next == rows;
  Upload upload;
  upload.add(position_, position, {rows});
  upload.add(slot_, slot, {rows});
  upload.to(store.device());
}

// Rows of a sequence are cut so that their scores fit; pages before every window are not read.
std::vector<AtenKvPass::Reading> AtenKvPass::readings(const AttentionSpec& spec) const {
  std::vector<Reading> out;
  for (const Sequence& s : sequences_) {
    const int64_t begin = host_position_[static_cast<size_t>(s.first_row)];
    const int64_t fits = scratch_numbers(store_.device()) / (spec.num_heads * (begin + s.rows));
    const int64_t most = std::max<int64_t>(fits, kFewestRows);
    for (int64_t i = 0; i < s.rows; i += most) {
      Reading r{s.first_row + i, std::min(most, s.rows - i), &s.pages, 0, 0};
      const int64_t reach = spec.window > 0 ? std::max<int64_t>(begin + i - spec.window + 1, 0) : 0;
      const int64_t end = end_of(r, opens(spec));
      check(end <= begin + s.rows, "cached attention: an open span goes on behind its pass");
      r.first_page = reach / page_tokens_;
      r.num_pages = (end + page_tokens_ - 1) / page_tokens_ - r.first_page;
      out.push_back(r);
    }
  }
  return out;
}

int64_t AtenKvPass::end_of(const Reading& reading, bool open) const {
  const auto last = static_cast<size_t>(reading.row + reading.rows - 1);
  return open ? open_[last].end : host_position_[last] + 1;
}

// Rows of pages as a table [B, most pages], from which the device makes those of keys.
PaddedBatch AtenKvPass::batch(const std::vector<Reading>& readings, bool open) const {
  int64_t rows = 0, pages = 0;
  for (const Reading& r : readings) {
    rows = std::max(rows, r.rows);
    pages = std::max(pages, r.num_pages);
  }
  PaddedRows query(rows, kNoQuery);
  PaddedSpans spans(rows);
  std::vector<int64_t> table, start, end;
  for (const Reading& r : readings) {
    query.add(r.row, r.rows, host_position_.data() + r.row);
    start.push_back(r.first_page * page_tokens_);
    end.push_back(end_of(r, open));
    if (open) spans.add(r.rows, open_.data() + r.row);
    for (int64_t i = 0; i < pages; ++i)
      table.push_back((*r.pages)[static_cast<size_t>(r.first_page + (i < r.num_pages ? i : 0))]);
  }
  const auto count = static_cast<int64_t>(readings.size());
  PaddedBatch b;
  at::Tensor page, first, last;
  Upload upload;
  query.upload_to(upload, b.query, b.query_position, b.query_place, b.query_row);
  if (open) spans.upload_to(upload, b.open_end);
  upload.add(page, table, {count, pages, 1});
  upload.add(first, start, {count, 1});
  upload.add(last, end, {count, 1});
  upload.to(store_.device());
  b.key = (page * page_tokens_ + at::arange(page_tokens_, page.options())).view({count, -1});
  b.key_position = first + at::arange(pages * page_tokens_, page.options());
  b.key_position.masked_fill_(b.key_position.ge(last), kNoKey);
  b.padding_is_any = true;
  return b;
}

const std::vector<PaddedBatch>& AtenKvPass::batches(const AttentionSpec& spec) const {
  for (const auto& shape : shapes_)
    if (shape->window == spec.window && shape->heads == spec.num_heads &&
        shape->open == opens(spec))
      return shape->batches;
  auto shape = std::make_unique<Shape>(Shape{spec.window, spec.num_heads, opens(spec), {}});
  const std::vector<Reading> all = readings(spec);
  std::vector<RectangleSize> sizes;
  for (const Reading& r : all) sizes.push_back({r.rows, r.num_pages * page_tokens_});
  for (const std::vector<size_t>& indices :
       batches_of(sizes, spec.num_heads, spec.num_kv_heads * spec.head_dim,
                  scratch_numbers(store_.device()))) {
    std::vector<Reading> together;
    for (const size_t i : indices) together.push_back(all[i]);
    shape->batches.push_back(batch(together, opens(spec)));
  }
  shapes_.push_back(std::move(shape));
  return shapes_.back()->batches;
}

RotaryRows AtenKvPass::rotary_of(const RotaryTable& table) const {
  if (table.by_token) return rotary_rows(table, position_);  // each call has its own
  for (const auto& known : rotary_)
    if (is_same(known->first, table)) return known->second;
  rotary_.push_back(
      std::make_unique<std::pair<RotaryTable, RotaryRows>>(table, rotary_rows(table, position_)));
  return rotary_.back()->second;
}

bool AtenKvPass::reads_pages(const AttentionSpec& spec) const {
  return packed_ && !opens(spec) && page_tokens_ == kFlashPageTokens &&
         reads_flash_pages(spec, store_.device());
}

const PagedFlashBatch& AtenKvPass::paged_batch() const {
  if (paged_batch_) return *paged_batch_;
  PagedFlashBatch b;
  size_t most = 0;
  for (const Sequence& s : sequences_) most = std::max(most, s.pages.size());
  std::vector<int64_t> query_start{0}, key_start{0}, keys, pages;
  for (const Sequence& s : sequences_) {
    const int64_t end = s.first_row + s.rows,
                  filled = host_position_[static_cast<size_t>(end - 1)] + 1;
    query_start.push_back(end);
    keys.push_back(filled);
    key_start.push_back(key_start.back() + filled);
    b.longest_query = std::max(b.longest_query, s.rows);
    b.longest_key = std::max(b.longest_key, filled);
    pages.insert(pages.end(), s.pages.begin(), s.pages.end());
    pages.resize(pages.size() + most - s.pages.size(), s.pages[0]);  // which nothing reads
  }
  const auto count = static_cast<int64_t>(sequences_.size());
  Upload upload;
  upload.add(b.query_start, query_start, {count + 1});
  upload.add(b.key_start, key_start, {count + 1});
  upload.add(b.keys, keys, {count});
  upload.add(b.page, pages, {count, static_cast<int64_t>(most)});
  upload.to(store_.device());
  for (at::Tensor* x : {&b.query_start, &b.key_start, &b.keys, &b.page}) *x = x->to(at::kInt);
  return paged_batch_.emplace(std::move(b));
}

at::Tensor AtenKvPass::attend(int64_t layer, const AttentionSpec& s, const RotaryTable& rotary,
                              const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  const BelowAutograd below;
  const RotaryRows rows = rotary_of(rotary);
  const at::Tensor heads = prepare_queries(s, rows, q);
  at::Tensor keys = store_.keys(layer), values = store_.values(layer);
  const auto write = [&](at::Tensor& to, const at::Tensor& x) {
    to.index_copy_(0, slot_, round_to_cache(s, x).to(to.scalar_type()));
  };
  write(keys, prepare_keys(s, rows, k));
  if (!s.values_in_keys) write(values, v.view({v.size(0), s.num_kv_heads, s.head_dim}));
  if (reads_pages(s)) {
    const auto in_pages = [&](const at::Tensor& x) {
      return x.unflatten(0, {x.size(0) / page_tokens_, page_tokens_});
    };
    PaddedResult all =
        paged_flash_attention(s, paged_batch(), heads, in_pages(keys), in_pages(values));
    join_sinks(s, all);
    return all.out.view_as(q);
  }
  at::Tensor out = at::empty_like(heads, at::MemoryFormat::Contiguous);
  for (const PaddedBatch& b : batches(s)) {
    PaddedResult of_batch = padded_attention(s, b, heads, keys, values);
    join_sinks(s, of_batch);
    out.index_copy_(0, b.query_row, of_batch.out);
  }
  return out.view_as(q);
}

}  // namespace

CachePage page_of(std::span<const AttentionSpec> layers, at::Device device) {
  const bool flash = std::all_of(layers.begin(), layers.end(), [&](const AttentionSpec& spec) {
    return spec.num_kv_heads == 0 || reads_flash_pages(spec, device);
  });
  CachePage page{flash ? kFlashPageTokens : kPageTokens, 0};
  for (const AttentionSpec& spec : layers)
    page.bytes += (spec.values_in_keys ? 1 : 2) * page.tokens * spec.num_kv_heads * spec.head_dim *
                  bytes_of(spec.cache_dtype);
  return page;
}

AtenKvStore::AtenKvStore(std::span<const AttentionSpec> layers, at::Device device)
    : page_(page_of(layers, device)),
      options_(at::TensorOptions(scalar_type(layers[0].cache_dtype)).device(device)),
      keys_(layers.size()),
      values_(layers.size()) {
  for (const AttentionSpec& spec : layers)
    heads_.push_back({spec.num_kv_heads, spec.head_dim, spec.values_in_keys});
  clear();
}

at::Tensor AtenKvStore::empty(const Heads& heads, int64_t pages) const {
  return at::empty({pages * page_.tokens, heads.number, heads.dim}, options_);
}

void AtenKvStore::clear() {
  pages_ = 0;
  for (size_t i = 0; i < heads_.size(); ++i) {
    keys_[i] = empty(heads_[i], 0);
    values_[i] = heads_[i].values_in_keys ? keys_[i] : empty(heads_[i], 0);
  }
}

// Doubles, so that pages are copied few times.
void AtenKvStore::grow(int64_t count, int64_t most) {
  if (count <= pages_) return;
  const BelowAutograd below;
  pages_ = std::max(count, std::min(2 * pages_, most));
  const auto grown = [this](const Heads& heads, const at::Tensor& before) {
    at::Tensor more = empty(heads, pages_);
    more.narrow(0, 0, before.size(0)).copy_(before);
    return more;
  };
  for (size_t i = 0; i < heads_.size(); ++i) {
    keys_[i] = grown(heads_[i], keys_[i]);
    values_[i] = heads_[i].values_in_keys ? keys_[i] : grown(heads_[i], values_[i]);
  }
}

void AtenKvStore::copy_page(int64_t from, int64_t to) {
  const BelowAutograd below;
  const auto copy = [&](const at::Tensor& x) {
    x.narrow(0, to * page_.tokens, page_.tokens)
        .copy_(x.narrow(0, from * page_.tokens, page_.tokens));
  };
  for (size_t i = 0; i < heads_.size(); ++i) {
    copy(keys_[i]);
    if (!heads_[i].values_in_keys) copy(values_[i]);
  }
}

std::unique_ptr<KvPass> AtenKvStore::pass(std::span<const CachedSequence> sequences,
                                          const Forest& forest) const {
  return std::make_unique<AtenKvPass>(*this, sequences, forest);
}

}  // namespace temper::ops::aten_impl

namespace temper::ops {

std::unique_ptr<KvStore> AtenBackend::make_store(std::span<const AttentionSpec> layers,
                                                 at::Device device) const {
  return std::make_unique<aten_impl::AtenKvStore>(layers, device);
}
CachePage AtenBackend::cache_page(std::span<const AttentionSpec> layers, at::Device device) const {
  return aten_impl::page_of(layers, device);
}

}  // namespace temper::ops
