// Reads supervised rows, whole or in pieces.
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "temper/data/loader.h"
#include "temper/data/read/source_format.h"

namespace temper::data {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;

// The tokens of rows that are split, those used last: a row is not tokenized again for each of its
// pieces. Thread-safe.
class WholeRows {
 public:
  using Row = std::shared_ptr<const WholeRow>;
  using Key = std::pair<const RowSet*, int64_t>;  // its first piece

  Row find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = place_.find(key);
    if (found == place_.end()) return nullptr;
    rows_.splice(rows_.begin(), rows_, found->second);
    return rows_.front().second;
  }

  void add(const Key& key, Row row) {
    const std::lock_guard lock(mutex_);
    if (place_.contains(key)) return;
    bytes_ += row->bytes();
    rows_.emplace_front(key, std::move(row));
    place_[key] = rows_.begin();
    for (; bytes_ > kMostBytes && rows_.size() > 1; rows_.pop_back()) {
      bytes_ -= rows_.back().second->bytes();
      place_.erase(rows_.back().first);
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::pair<Key, Row>> rows_;  // the one used last first
  std::map<Key, std::list<std::pair<Key, Row>>::iterator> place_;
  int64_t bytes_ = 0;
};

std::optional<SftRow> read_piece(const SftFormat& format, const RowOrder::Drawn& drawn,
                                 const Json& json, WholeRows& whole_rows) {
  const int64_t piece = drawn.file->piece(drawn.row);
  const WholeRows::Key key{drawn.file, drawn.row - piece};
  WholeRows::Row whole = whole_rows.find(key);
  if (!whole) {
    auto read = read_whole_row(format, json, drawn.file->where(drawn.row));
    if (!read || read->pieces(format.max_length) == 1) return {};
    whole = std::make_shared<const WholeRow>(*std::move(read));
    whole_rows.add(key, whole);
  }
  return whole->piece(piece, format.max_length);
}

}  // namespace

Loader<SftRow>::Read sft_reader(SftFormat format) {
  return [format = std::move(format), whole_rows = std::make_shared<WholeRows>()](
             const RowOrder::Drawn& drawn, LoaderState& state) {
    bool truncated = false;
    const SftFormat own = of_source(format, *drawn.file, drawn.row);
    const Json json = drawn.file->row(drawn.row);
    std::optional<SftRow> row;
    if (own.overlong == Overlong::kSplit) row = read_piece(own, drawn, json, *whole_rows);
    if (!row) row = read_sft_row(own, json, drawn.file->where(drawn.row), &truncated);
    if (!row) return row;
    add_notices(state, own, json, drawn);
    state.truncated += truncated;
    state.untrained += row->supervised() == 0;
    state.with_eos += trains_end(format, *row);
    return row;
  };
}

Pieces sft_pieces(SftFormat format) {
  if (format.overlong != Overlong::kSplit) return {};
  return [format = std::move(format)](const RowSet& rows, int64_t row) {
    const SftFormat own = of_source(format, rows, row);
    const auto whole = read_whole_row(own, rows.row(row), rows.where(row));
    return whole ? whole->pieces(own.max_length) : int64_t{1};
  };
}

}  // namespace temper::data
