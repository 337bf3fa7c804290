#include "temper/metrics/sinks/wandb_log.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "temper/metrics/sinks/protobuf.h"

namespace temper {
namespace {

using protobuf::bytes_field;
using protobuf::int_field;
using protobuf::little_endian;

constexpr std::string_view kIdent = ":W&B";
constexpr uint16_t kMagic = 0xbee1;
constexpr uint64_t kBlock = 32768, kFrameHeader = 7;
enum FrameType : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

// Field numbers of Record.
enum : uint32_t { kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21 };

uint32_t checksum(FrameType type, std::string_view bytes) {
  const auto byte = static_cast<Bytef>(type);
  const uLong crc = ::crc32(::crc32(0, nullptr, 0), &byte, 1);
  return static_cast<uint32_t>(
      ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

std::string frame(FrameType type, std::string_view bytes) {
  return little_endian(checksum(type, bytes)) + little_endian(static_cast<uint16_t>(bytes.size())) +
         static_cast<char>(type) + std::string(bytes);
}

// A HistoryItem, a SummaryItem or a ConfigItem.
std::string item(std::string_view name, std::string_view json) {
  return bytes_field(1, name) + bytes_field(16, json);
}

std::string record(int64_t number, uint32_t field, std::string_view message) {
  return int_field(1, number) + bytes_field(field, message);
}

}  // namespace

std::string wandb_header() { return std::string(kIdent) + little_endian(kMagic) + '\0'; }

std::string wandb_frames(std::string_view record, uint64_t offset) {
  std::string out;
  for (bool first = true;; first = false) {
    uint64_t space = kBlock - (offset + out.size()) % kBlock;
    if (space < kFrameHeader) {
      out.append(space, '\0');
      space = kBlock;
    }
    const size_t size = std::min<uint64_t>(space - kFrameHeader, record.size());
    const bool last = size == record.size();
    out +=
        frame(first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle), record.substr(0, size));
    record.remove_prefix(size);
    if (last) return out;
  }
}

std::vector<std::string> read_wandb_records(std::string_view file) {
  std::vector<std::string> records;
  if (!file.starts_with(wandb_header())) return records;
  std::string part;
  bool open = false;  // the record has begun and not ended
  for (uint64_t at = wandb_header().size();;) {
    if (kBlock - at % kBlock < kFrameHeader) at += kBlock - at % kBlock;
    if (at > file.size() || file.size() - at < kFrameHeader) return records;
    const auto number = [&](size_t from, size_t count) {
      uint32_t value = 0;
      for (size_t i = 0; i < count; ++i)
        value |= static_cast<uint32_t>(static_cast<uint8_t>(file[at + from + i])) << (8 * i);
      return value;
    };
    const uint32_t sum = number(0, 4), size = number(4, 2);
    const auto type = static_cast<FrameType>(number(6, 1));
    if (file.size() - at - kFrameHeader < size) return records;
    const std::string_view bytes = file.substr(at + kFrameHeader, size);
    const bool begins = type == kFull || type == kFirst;
    if (checksum(type, bytes) != sum || begins == open) return records;
    part += bytes;
    open = type == kFirst || type == kMiddle;
    if (!open) records.push_back(std::exchange(part, {}));
    at += kFrameHeader + size;
  }
}

std::string wandb_first_record() { return record(1, kHeader, ""); }

std::string wandb_run_record(int64_t number, const WandbRun& run) {
  const double seconds = std::floor(run.start_time);
  const std::string time = int_field(1, static_cast<int64_t>(seconds)) +
                           int_field(2, static_cast<int64_t>((run.start_time - seconds) * 1e9));
  const auto text = [](uint32_t field, const std::string& value) {
    return value.empty() ? "" : bytes_field(field, value);
  };
  std::string config;
  for (const auto& [name, json] : run.config) config += bytes_field(1, item(name, json));
  return record(number, kRun,
                text(1, run.id) + text(2, run.entity) + text(3, run.project) + text(4, config) +
                    text(8, run.name) + text(13, run.host) + bytes_field(17, time));
}

std::string wandb_history_record(int64_t number, int64_t step, WandbItems items) {
  std::string message;
  for (const auto& [name, json] : items) message += bytes_field(1, item(name, json));
  message += bytes_field(1, item("_step", std::to_string(step)));
  return record(number, kHistory, message + bytes_field(2, int_field(1, step)));
}

std::string wandb_summary_record(int64_t number, WandbItems items) {
  std::string message;
  for (const auto& [name, json] : items) message += bytes_field(1, item(name, json));
  return record(number, kSummary, message);
}

std::string wandb_exit_record(int64_t number, int64_t seconds) {
  return record(number, kExit, int_field(2, seconds));
}

namespace {

// Calls `on` with the messages that a history record has as this field, until one returns true.
template <class On>
void each_part(std::string_view record, uint32_t number, On&& on) {
  protobuf::Reader fields(record);
  while (const auto field = fields.next()) {
    if (field->number != kHistory || field->type != protobuf::kBytes) continue;
    protobuf::Reader history(field->bytes);
    while (const auto part = history.next())
      if (part->number == number && part->type == protobuf::kBytes && on(part->bytes)) return;
  }
}

}  // namespace

int64_t wandb_history_step(std::string_view record) {
  int64_t found = -1;
  each_part(record, 2, [&found](std::string_view part) {
    found = 0;  // zeros are not written
    protobuf::Reader step(part);
    while (const auto value = step.next())
      if (value->number == 1) found = static_cast<int64_t>(value->value);
    return true;
  });
  return found;
}

std::vector<std::pair<std::string, std::string>> wandb_history_items(std::string_view record) {
  std::vector<std::pair<std::string, std::string>> items;
  each_part(record, 1, [&items](std::string_view part) {
    std::string name, json;
    protobuf::Reader fields(part);
    while (const auto field = fields.next()) {
      if (field->number == 1) name = field->bytes;
      if (field->number == 16) json = field->bytes;
    }
    if (name != "_step") items.emplace_back(std::move(name), std::move(json));
    return false;
  });
  return items;
}

}  // namespace temper
