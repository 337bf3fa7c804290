// The file of an offline run of Weights & Biases, run-ID.wandb, that `wandb sync` uploads: a log in
// LevelDB's format (github.com/google/leveldb/blob/main/doc/log_format.md, with zlib's CRC-32) of
// Record messages (wandb/proto/wandb_internal.proto), behind a header of seven bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {

std::string wandb_header();

// A record's frames where it begins `offset` bytes into the file.
std::string wandb_frames(std::string_view record, uint64_t offset);

// The records of a whole file, up to the first that is damaged or half-written; none where the
// header is another's.
std::vector<std::string> read_wandb_records(std::string_view file);

// Pairs of a name and a value, which is JSON.
using WandbItems = std::span<const std::pair<std::string, std::string>>;

struct WandbRun {
  std::string id, project, entity, name, host;
  double start_time = 0;  // seconds since 1970
  WandbItems config = {};
};

// Records. `number` is a record's place in the file, from 1.
std::string wandb_first_record();  // the record with number 1
std::string wandb_run_record(int64_t number, const WandbRun& run);
std::string wandb_history_record(int64_t number, int64_t step, WandbItems items);
std::string wandb_summary_record(int64_t number, WandbItems items);
std::string wandb_exit_record(int64_t number, int64_t seconds);

// The step of a history record, -1 for another record.
int64_t wandb_history_step(std::string_view record);
// Its items, without `_step`.
std::vector<std::pair<std::string, std::string>> wandb_history_items(std::string_view record);

}  // namespace temper
