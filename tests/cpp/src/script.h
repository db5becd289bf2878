// Scripts: calls of a tracer, one a line, as tests/support/cpp_scripts.py writes them.
//
//   B name                       create_event_block            M name              set_method
//   S key name chain handle      start_profiling               T parent state      set_trace_context
//   E key                        end_profiling                 A key value         set_attribute (text)
//   D key name id                start_profiling_delegate      X error             end_block
//   F key metadata               end_profiling_delegate        P                   drain what has ended
//   L name id start end metadata log_profiling_delegate        O                   drain open blocks, too
//   H chain handle               set_chain_debug_handle        C ticks             move the clock
//
// Texts are hexadecimal; "-" is a null pointer, "." is empty. A key names an entry; one that was never filled in is all zero.
#pragma once

#include <executorch/runtime/core/event_tracer.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace script {

using executorch::runtime::EventTracer;
using executorch::runtime::EventTracerEntry;

/// A text of a script: nothing, or bytes.
struct Text {
  bool null = true;
  std::string bytes;

  const char* c_str() const { return null ? nullptr : bytes.c_str(); }
};

inline Text text_of(const std::string& word) {
  Text text;
  text.null = word == "-";
  for (size_t i = 0; !text.null && i + 1 < word.size(); i += 2) {
    text.bytes.push_back(static_cast<char>(std::strtoul(word.substr(i, 2).c_str(), nullptr, 16)));
  }
  return text;
}

/// The lines of a file, as words.
inline std::vector<std::vector<std::string>> read(std::FILE* file) {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> words(1);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    if (c == ' ') {
      words.emplace_back();
    } else if (c != '\n') {
      words.back().push_back(static_cast<char>(c));
    } else {
      lines.push_back(words);
      words.assign(1, "");
    }
  }
  return lines;
}

/// Plays the calls that every EventTracer has; false: the line is another.
class Player {
 public:
  bool play(EventTracer& tracer, const std::vector<std::string>& line) {
    switch (line[0][0]) {
      case 'B':
        tracer.create_event_block(text_of(line[1]).c_str());
        return true;
      case 'S':
        entries_[line[1]] = tracer.start_profiling(text_of(line[2]).c_str(), static_cast<int32_t>(integer(line[3])),
                                                   static_cast<uint32_t>(integer(line[4])));
        return true;
      case 'E':
        tracer.end_profiling(entries_[line[1]]);
        return true;
      case 'D':
        entries_[line[1]] =
            tracer.start_profiling_delegate(text_of(line[2]).c_str(), static_cast<int32_t>(integer(line[3])));
        return true;
      case 'F': {
        const Text metadata = text_of(line[2]);
        tracer.end_profiling_delegate(entries_[line[1]], metadata.c_str(), metadata.bytes.size());
        return true;
      }
      case 'L': {
        const Text metadata = text_of(line[5]);
        tracer.log_profiling_delegate(text_of(line[1]).c_str(), static_cast<int32_t>(integer(line[2])), ticks(line[3]),
                                      ticks(line[4]), metadata.c_str(), metadata.bytes.size());
        return true;
      }
      case 'H':
        tracer.set_chain_debug_handle(static_cast<int32_t>(integer(line[1])), static_cast<uint32_t>(integer(line[2])));
        return true;
      default:
        return false;
    }
  }

  static int64_t integer(const std::string& word) { return std::strtoll(word.c_str(), nullptr, 10); }
  static uint64_t ticks(const std::string& word) { return std::strtoull(word.c_str(), nullptr, 10); }

 private:
  std::map<std::string, EventTracerEntry> entries_;
};

}  // namespace script
