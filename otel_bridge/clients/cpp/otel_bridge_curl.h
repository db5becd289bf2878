// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Sends to a bridge by HTTPS, through libcurl 7.66 or later.
//
//   otel_bridge::HttpOptions options;
//   options.ca_file = "/etc/ssl/fleet.pem";
//   otel_bridge::HttpTransport transport("https://bridge.example.com/v1/events", options);
//
// Invariants
// * The server's certificate and its name are verified, always. Redirects are not followed: requests and tokens go only where
//   they were configured to go.
// * One deadline holds over the whole of `send`. The connection is kept between requests.
// * Of an answer the first 4 KiB are kept. libcurl allocates as it needs; we allocate nothing after construction.
// * A peer that goes away gives an error, never SIGPIPE.
// * libcurl's global state is the application's: where it has several threads, it calls `curl_global_init` first.
//
// Sources: OTLP specification, "Failures" (which statuses a retry helps); curl.se/libcurl/c.
#pragma once

#include <curl/curl.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "otel_bridge.h"
#include "otel_bridge/answer.h"
#include "otel_bridge/bridge_transport.h"

#if LIBCURL_VERSION_NUM < 0x074200
#error "libcurl 7.66 or later is needed, for CURLINFO_RETRY_AFTER"
#endif

namespace otel_bridge {

/// Texts are copied.
struct HttpOptions {
  uint32_t timeout_ms = 10000;             ///< for one `send`, connecting included; 0 counts as 1; at most a day
  const char* ca_file = nullptr;           ///< PEM, authorities that vouch for the server; null: those of libcurl
  const char* certificate_file = nullptr;  ///< PEM, the certificate of the device; null: none
  const char* key_file = nullptr;          ///< PEM, its key; null: it stands in `certificate_file`
  const char* bearer_token = nullptr;      ///< sent as `Authorization: Bearer ...`; null: none
};

namespace internal {

/// Holds SIGPIPE back from this thread: with CURLOPT_NOSIGNAL, which threads need, libcurl does not always.
class PipeSignalHeld {
 public:
  PipeSignalHeld() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    was_pending_ = is_pending();
    held_ = ::pthread_sigmask(SIG_BLOCK, &pipe, &before_) == 0;
  }
  PipeSignalHeld(const PipeSignalHeld&) = delete;
  PipeSignalHeld& operator=(const PipeSignalHeld&) = delete;

  ~PipeSignalHeld() {
    if (!held_) return;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    int number = 0;
    if (!was_pending_ && is_pending()) sigwait(&pipe, &number);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  static bool is_pending() {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
  }

  sigset_t before_;
  bool was_pending_ = false;
  bool held_ = false;
};

}  // namespace internal

class HttpTransport final : public BridgeTransport {
 public:
  /// `url` begins with https:// or, for loopback and links that are trusted, http://. What cannot be used is told by `valid()`
  /// and by each `send`.
  explicit HttpTransport(const char* url, const HttpOptions& options = HttpOptions()) : handle_(curl_easy_init()) {
    if (handle_ == nullptr) {
      refuse("libcurl cannot be initialised");
      return;
    }
    set_destination(url);
    set_identity(options);
    set_headers();
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::clamp<uint32_t>(options.timeout_ms, 1, kDayMs)), "no timeout can be set");
    set(CURLOPT_NOSIGNAL, 1L, "signals cannot be switched off");
    set(CURLOPT_POST, 1L, "libcurl cannot POST");
    set(CURLOPT_ERRORBUFFER, error_, "libcurl tells no errors");
    set(CURLOPT_WRITEFUNCTION, &HttpTransport::keep, "libcurl gives no answers");
    set(CURLOPT_WRITEDATA, static_cast<void*>(this), "libcurl gives no answers");
  }

  HttpTransport(const HttpTransport&) = delete;
  HttpTransport& operator=(const HttpTransport&) = delete;

  ~HttpTransport() {
    const internal::PipeSignalHeld held;
    if (handle_ != nullptr) curl_easy_cleanup(handle_);
    curl_slist_free_all(headers_);
  }

  bool valid() const { return invalid_ == nullptr; }

  /// The HTTP status of the last `send`; 0: there was no answer.
  long status() const { return status_; }

  bool send(const void* data, size_t size) override {
    begin();
    status_ = 0;
    body_size_ = 0;
    error_[0] = '\0';
    if (!valid()) {
      message_ << invalid_;
      return not_taken(false, 0);
    }
    const internal::PipeSignalHeld held;
    stamp();
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(size));
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDS, size == 0 ? "" : static_cast<const char*>(data));
    const CURLcode code = curl_easy_perform(handle_);
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDS, "");  // the bytes are the caller's
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status_);
    return code == CURLE_OK ? conclude() : explain(code);
  }

 private:
  static constexpr uint32_t kDayMs = 24 * 60 * 60 * 1000;
  static constexpr char kSent[] = "otel-bridge-sent-unix-ns: ";
  static constexpr char kNoTime[] = "otel-bridge-sent-unix-ns: 0000000000000000000";
  static constexpr int kSentDigits = static_cast<int>(sizeof kNoTime - sizeof kSent);  // enough until 2286

  void refuse(const char* why) {
    if (invalid_ == nullptr) invalid_ = why;
  }

  template <class Value>
  void set(CURLoption option, Value value, const char* what_if_not) {
    if (valid() && curl_easy_setopt(handle_, option, value) != CURLE_OK) refuse(what_if_not);
  }

  void set_destination(const char* url) {
    if (url == nullptr || (std::strncmp(url, "https://", 8) != 0 && std::strncmp(url, "http://", 7) != 0)) {
      return refuse("the URL does not begin with https:// or http://");
    }
    set(CURLOPT_URL, url, "the URL cannot be used");
    set(CURLOPT_FOLLOWLOCATION, 0L, "redirects cannot be switched off");
    // One request at a time gains nothing from HTTP/2.
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1), "libcurl lacks HTTP/1.1");
  }

  void set_identity(const HttpOptions& options) {
    if (options.ca_file != nullptr) set(CURLOPT_CAINFO, options.ca_file, "libcurl takes no ca_file");
    if (options.certificate_file != nullptr) {
      set(CURLOPT_SSLCERT, options.certificate_file, "libcurl takes no certificate_file");
      const char* const key_file = options.key_file != nullptr ? options.key_file : options.certificate_file;
      set(CURLOPT_SSLKEY, key_file, "libcurl takes no key_file");
    }
    const char* token = options.bearer_token;
    if (token == nullptr) return;
    const bool printable = std::all_of(token, token + std::strlen(token), [](char c) { return c > ' ' && c <= '~'; });
    if (token[0] == '\0' || !printable) return refuse("the bearer token is empty or not printable");
    set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER), "libcurl sends no bearer tokens");
    set(CURLOPT_XOAUTH2_BEARER, token, "libcurl sends no bearer tokens");
  }

  void set_headers() {
    // Expect: a large request would wait a second for a "100 Continue" that few servers give.
    for (const char* header : {kNoTime, "Content-Type: application/x-protobuf", "Expect:"}) {
      curl_slist* longer = curl_slist_append(headers_, header);
      if (longer == nullptr) return refuse("there is no memory for headers");
      headers_ = longer;
    }
    set(CURLOPT_HTTPHEADER, headers_, "libcurl takes no headers");
    set(CURLOPT_USERAGENT, "otel-bridge-cpp", "libcurl takes no headers");
  }

  // Write the time into the header, in the list's own memory: a new list would be an allocation a request.
  void stamp() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const long long now_ns = static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    std::snprintf(headers_->data, sizeof kNoTime, "%s%0*lld", kSent, kSentDigits, now_ns);
  }

  static size_t keep(char* data, size_t one, size_t count, void* self) {
    HttpTransport& transport = *static_cast<HttpTransport*>(self);
    const size_t size = one * count;
    const size_t kept = std::min(size, sizeof transport.body_ - transport.body_size_);
    std::copy_n(data, kept, transport.body_ + transport.body_size_);
    transport.body_size_ += kept;
    return size;
  }

  bool conclude() {
    const std::string_view body(body_, body_size_);
    const bool whole = body_size_ < sizeof body_;
    if (status_ >= 200 && status_ < 300) return taken(whole ? &body : nullptr);
    internal::RpcStatus said;
    if (!is_protobuf() || !internal::read_rpc_status(body, &said)) said.message = body;
    message_ << "the bridge answered HTTP " << static_cast<uint64_t>(status_);
    if (!said.message.empty()) message_ << ": ";
    if (!said.message.empty()) message_.quote(said.message);
    curl_off_t wait_s = 0;
    curl_easy_getinfo(handle_, CURLINFO_RETRY_AFTER, &wait_s);
    const uint32_t wait_ms = static_cast<uint32_t>(std::clamp<curl_off_t>(wait_s, 0, kDayMs / 1000)) * 1000;
    const bool again = status_ == 429 || (status_ >= 502 && status_ <= 504);
    return not_taken(again, said.retry_info.wait_ms != 0 ? said.retry_info.wait_ms : wait_ms);
  }

  bool is_protobuf() const {
    const char* type = nullptr;
    curl_easy_getinfo(handle_, CURLINFO_CONTENT_TYPE, &type);
    return type != nullptr && std::strncmp(type, "application/x-protobuf", 22) == 0;
  }

  bool explain(CURLcode code) {
    message_ << "no answer: ";
    message_.quote(error_[0] != '\0' ? error_ : curl_easy_strerror(code));
    return not_taken(code != CURLE_URL_MALFORMAT, 0);  // a certificate may be mended, and the clock by which it is judged
  }

  CURL* handle_;
  curl_slist* headers_ = nullptr;  // the first is the time of sending
  const char* invalid_ = nullptr;
  long status_ = 0;
  size_t body_size_ = 0;
  char error_[CURL_ERROR_SIZE] = "";
  char body_[4096];
};

}  // namespace otel_bridge
