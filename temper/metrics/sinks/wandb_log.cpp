#include "temper/metrics/sinks/wandb_log.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "temper/metrics/sinks/little_endian.h"

namespace temper {
namespace {

using protozero::pbf_reader;
using protozero::pbf_writer;
constexpr auto kBytes = protozero::pbf_wire_type::length_delimited;

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

// HistoryItems, SummaryItems or ConfigItems, as the message's field 1.
void add_item(pbf_writer& message, const std::string& name, const std::string& json) {
  pbf_writer item(message, 1);
  item.add_string(1, name);
  item.add_string(16, json);
}
std::string message_of(WandbItems items) {
  std::string out;
  pbf_writer message(out);
  for (const auto& [name, json] : items) add_item(message, name, json);
  return out;
}

// Zeros are not written.
void add_number(pbf_writer& message, uint32_t field, int64_t value) {
  if (value != 0) message.add_int64(field, value);
}
std::string number_field(uint32_t field, int64_t value) {
  std::string out;
  pbf_writer message(out);
  add_number(message, field, value);
  return out;
}

std::string record(int64_t number, uint32_t field, const std::string& message) {
  std::string out;
  pbf_writer record(out);
  add_number(record, 1, number);
  record.add_message(field, message);
  return out;
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
  std::string out, time = number_field(1, static_cast<int64_t>(seconds)) +
                          number_field(2, static_cast<int64_t>((run.start_time - seconds) * 1e9));
  pbf_writer message(out);
  const auto text = [&](uint32_t field, const std::string& value) {
    if (!value.empty()) message.add_string(field, value);
  };
  text(1, run.id);
  text(2, run.entity);
  text(3, run.project);
  text(4, message_of(run.config));
  text(8, run.name);
  text(13, run.host);
  message.add_message(17, time);
  return record(number, kRun, out);
}

std::string wandb_history_record(int64_t number, int64_t step, WandbItems items) {
  std::string out = message_of(items);
  pbf_writer message(out);
  add_item(message, "_step", std::to_string(step));
  message.add_message(2, number_field(1, step));
  return record(number, kHistory, out);
}

std::string wandb_summary_record(int64_t number, WandbItems items) {
  return record(number, kSummary, message_of(items));
}

std::string wandb_exit_record(int64_t number, int64_t seconds) {
  return record(number, kExit, number_field(2, seconds));
}

namespace {

// Calls `on` with the messages that a history record has as this field, up to damage.
template <class On>
void each_part(std::string_view record, uint32_t number, On&& on) {
  try {
    for (pbf_reader fields(record.data(), record.size()); fields.next(kHistory, kBytes);)
      for (pbf_reader history = fields.get_message(); history.next(number, kBytes);)
        on(history.get_message());
  } catch (const protozero::exception&) {
  }
}

}  // namespace

int64_t wandb_history_step(std::string_view record) {
  int64_t found = -1;
  each_part(record, 2, [&found](pbf_reader step) {
    found = 0;  // zeros are not written
    while (step.next(1, protozero::pbf_wire_type::varint)) found = step.get_int64();
  });
  return found;
}

std::vector<std::pair<std::string, std::string>> wandb_history_items(std::string_view record) {
  std::vector<std::pair<std::string, std::string>> items;
  each_part(record, 1, [&items](pbf_reader item) {
    std::string name, json;
    while (item.next()) {
      if (item.tag_and_type() == protozero::tag_and_type(1, kBytes))
        name = item.get_string();
      else if (item.tag_and_type() == protozero::tag_and_type(16, kBytes))
        json = item.get_string();
      else
        item.skip();
    }
    if (name != "_step") items.emplace_back(std::move(name), std::move(json));
  });
  return items;
}

}  // namespace temper
