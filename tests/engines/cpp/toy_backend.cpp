// The run-time half of `BridgeToyBackend` (tests/engines/executorch/toy_delegate.py), as a shared library: loading it registers
// the backend. It computes nothing: outputs are zeros. It logs what a delegate logs.
//
// Its blob is text: `int` or `str`, the kind of its delegate debug identifiers, then a line for each delegate event:
// an identifier, a tab, a name of an operation. Every other event is logged live, the rest after the fact. The metadata of the
// k-th is {"op":"<operation>","order":<k>}.
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/platform.h>

namespace {

using executorch::runtime::ArrayRef;
using executorch::runtime::Backend;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateDebugIntId;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::EventTracer;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::kUnsetDelegateDebugIntId;
using executorch::runtime::Result;
using executorch::runtime::Span;

struct Step {
  std::string identifier;
  std::string metadata;
};

struct Plan {
  bool numbered = false;
  std::vector<Step> steps;
};

Plan read_plan(const std::string& blob) {
  Plan plan;
  size_t end = blob.find('\n');
  plan.numbered = blob.substr(0, end) == "int";
  while (end != std::string::npos) {
    const size_t begin = end + 1;
    end = blob.find('\n', begin);
    const std::string line = blob.substr(begin, end == std::string::npos ? end : end - begin);
    const size_t tab = line.find('\t');
    if (tab != std::string::npos) {
      const std::string order = std::to_string(plan.steps.size());
      plan.steps.push_back({line.substr(0, tab), "{\"op\":\"" + line.substr(tab + 1) + "\",\"order\":" + order + "}"});
    }
  }
  return plan;
}

void work() {
  volatile double value = 1;
  for (int i = 0; i < 2000; ++i) {
    value = value * 1.0000001;
  }
}

void log_step(EventTracer* tracer, const Plan& plan, const Step& step, bool live) {
  const char* name = plan.numbered ? nullptr : step.identifier.c_str();
  const DelegateDebugIntId number = plan.numbered ? std::atoi(step.identifier.c_str()) : kUnsetDelegateDebugIntId;
  const void* metadata = step.metadata.data();
  if (live) {
    const auto entry = executorch::runtime::event_tracer_start_profiling_delegate(tracer, name, number);
    work();
    executorch::runtime::event_tracer_end_profiling_delegate(tracer, entry, metadata, step.metadata.size());
  } else {
    const auto start = executorch::runtime::pal_current_ticks();
    work();
    const auto end = executorch::runtime::pal_current_ticks();
    executorch::runtime::event_tracer_log_profiling_delegate(tracer, name, number, start, end, metadata, step.metadata.size());
  }
}

class BridgeToyBackend final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer* processed, ArrayRef<CompileSpec>) const override {
    Plan plan = read_plan(std::string(static_cast<const char*>(processed->data()), processed->size()));
    processed->Free();
    return new Plan(std::move(plan));
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle, Span<EValue*> arguments) const override {
    const Plan& plan = *static_cast<const Plan*>(handle);
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      log_step(context.event_tracer(), plan, plan.steps[i], i % 2 == 0);
    }
    EValue* output = arguments[arguments.size() - 1];
    if (output->isTensor()) {
      std::memset(output->toTensor().mutable_data_ptr(), 0, output->toTensor().nbytes());
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle* handle) const override { delete static_cast<Plan*>(handle); }
};

BridgeToyBackend backend;
[[maybe_unused]] const Error registered = executorch::runtime::register_backend(Backend{"BridgeToyBackend", &backend});

}  // namespace
