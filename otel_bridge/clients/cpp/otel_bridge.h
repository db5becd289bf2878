// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// otel-bridge for device runtimes: ExecuTorch's profiling events, from memory of fixed size, to a bridge.
//
//     static otel_bridge::StaticRingTracer<> tracer;                          // hand it to a Module or a Method
//     otel_bridge::StreamInfo info;                                           // who and what this process is
//     otel_bridge::Uploader uploader(tracer, info, transport, buffer, size);  // on another thread: uploader.poll()
//
//     {
//       otel_bridge::Inference inference(tracer, "forward");                  // optional: method, trace context, error
//       inference.end(module.execute("forward", inputs).error());
//     }
//
// Invariants
// * Nothing is allocated, thrown or aborted, and the executing thread never waits. What does not fit is dropped and counted by
//   reason; the count reaches the bridge with the next request that gets through.
// * One thread at a time produces events (as ExecuTorch's EventTracer asks), one consumes them; they may be different threads,
//   and neither waits for the other. A second producer at the same moment loses its event, which is counted.
// * An event that is in the ring keeps its text and metadata until it is encoded; encoded bytes are kept, unchanged and under
//   one sequence number, until a transport has handed them over or was told that they never will be taken.
// * Needs ExecuTorch 0.7 or later, its headers only, and a toolchain of C++17; compiles without exceptions and RTTI.
//
// The parts, in reading order: what all use, the producer's side, the consumer's side, the way out.
#pragma once

#include "otel_bridge/platform.h"
#include "otel_bridge/protobuf.h"
#include "otel_bridge/attributes.h"
#include "otel_bridge/drops.h"

#include "otel_bridge/hash.h"
#include "otel_bridge/records.h"
#include "otel_bridge/ring_memory.h"
#include "otel_bridge/turn.h"
#include "otel_bridge/ring.h"
#include "otel_bridge/identifier_table.h"
#include "otel_bridge/context.h"
#include "otel_bridge/recorder.h"
#include "otel_bridge/tracer.h"
#include "otel_bridge/static_tracer.h"
#include "otel_bridge/inference.h"

#include "otel_bridge/stream_info.h"
#include "otel_bridge/drop_ledger.h"
#include "otel_bridge/stream_writer.h"
#include "otel_bridge/plan.h"
#include "otel_bridge/request_tables.h"
#include "otel_bridge/planner.h"
#include "otel_bridge/request_writer.h"
#include "otel_bridge/encoder.h"

#include "otel_bridge/transport.h"
#include "otel_bridge/callback_transport.h"
#include "otel_bridge/file_transport.h"
#include "otel_bridge/armour.h"
#include "otel_bridge/uploader.h"

#include "otel_bridge/build_id.h"
