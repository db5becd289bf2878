#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>

/// A module that records what its executions do. For one thread at a time, as ExecuTorch's tracer is.
class ProfiledModule {
 public:
  using Module = executorch::extension::Module;
  using EValue = executorch::runtime::EValue;

  explicit ProfiledModule(const std::string& path)
      : module_(path, Module::LoadMode::Mmap, std::make_unique<executorch::etdump::ETDumpGen>()) {}

  executorch::runtime::Result<std::vector<EValue>> execute(const std::string& method, const std::vector<EValue>& inputs) {
    recorded_ = true;
    return module_.execute(method, inputs);
  }

  /// Writes what was recorded since the last drain. False: nothing was, or the file could not be written.
  bool drain(const std::string& path) {
    if (!recorded_) {
      return false;  // a second drain without an execution in between crashes the runtime
    }
    recorded_ = false;
    const auto etdump = static_cast<executorch::etdump::ETDumpGen*>(module_.event_tracer())->get_etdump_data();
    std::FILE* file = etdump.buf != nullptr ? std::fopen(path.c_str(), "wb") : nullptr;
    bool whole = file != nullptr && std::fwrite(etdump.buf, 1, etdump.size, file) == etdump.size;
    whole = (file == nullptr || std::fclose(file) == 0) && whole;
    std::free(etdump.buf);
    return whole;
  }

 private:
  Module module_;
  bool recorded_ = false;
};
