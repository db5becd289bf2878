import Foundation

/// What became of an ETDump. The text is JSON: counts of events, or what is wrong with the file.
enum UploadOutcome: Equatable {
  case taken(String)  // delete the file
  case refused(String)  // delete it, it will be refused again
  case later(seconds: Double, why: String)  // keep it: sent again, it shows once
}

/// Sends ETDumps to an otel-bridge.
struct ETDumpUploader {
  /// Such as https://profiles.example.com.
  let bridge: URL
  /// What a file does not say: parameters of POST /v1/etdump, such as ["model": "camera@1.0"].
  let said: [String: String]
  var session = URLSession.shared

  func upload(_ etdump: URL, method: String) async -> UploadOutcome {
    do {
      let values = try etdump.resourceValues(forKeys: [.contentModificationDateKey])
      var parameters = said
      parameters["method"] = method
      parameters["ended_at"] = nanoseconds(values.contentModificationDate ?? Date())
      var request = URLRequest(url: address(parameters))
      request.httpMethod = "POST"
      request.timeoutInterval = 30
      request.setValue("application/octet-stream", forHTTPHeaderField: "Content-Type")
      request.setValue(nanoseconds(Date()), forHTTPHeaderField: "otel-bridge-sent-unix-ns")
      let (data, response) = try await session.upload(for: request, fromFile: etdump)
      let answer = String(decoding: data, as: UTF8.self)
      let http = response as? HTTPURLResponse
      switch http?.statusCode ?? 0 {
      case 200: return .taken(answer)
      case 400, 413, 500: return .refused(answer)  // the bridge's word on this file
      default:  // on another matter: it is full, or a proxy wants another token
        let told = http?.value(forHTTPHeaderField: "Retry-After").flatMap { Double($0) }
        return .later(seconds: told ?? 30, why: answer)
      }
    } catch {
      return .later(seconds: 30, why: error.localizedDescription)
    }
  }

  private func address(_ parameters: [String: String]) -> URL {
    let path = bridge.appendingPathComponent("v1/etdump")
    var components = URLComponents(url: path, resolvingAgainstBaseURL: false)!
    components.queryItems = parameters.sorted { $0.key < $1.key }.map { URLQueryItem(name: $0.key, value: $0.value) }
    // A query is read as a form's, where + is a space; URLComponents leaves + as it is.
    components.percentEncodedQuery = components.percentEncodedQuery?.replacingOccurrences(of: "+", with: "%2B")
    return components.url!
  }

  private func nanoseconds(_ date: Date) -> String {
    String(Int64(date.timeIntervalSince1970 * 1_000) * 1_000_000)
  }
}
