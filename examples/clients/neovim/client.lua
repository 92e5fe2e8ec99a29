-- A client of pi-session-server for Neovim 0.7 and newer; copy what is above "the demonstration".
-- `nvim -u NONE --headless -c 'luafile client.lua'` runs that.

local Client = {}
Client.__index = Client

--- Starts the server with these options, a list.
--- `on_event(name, params)` is called for each event, `on_complaint(text)` for what it writes to stderr.
--- `on_hook(name, params)` answers a question of the server: nil allows the action, { cancel = true } stops it.
function Client.start(options, handlers)
  local client = setmetatable({ handlers = handlers, replies = {}, last_id = 0, pieces = {} }, Client)
  local program = vim.env.PI_SESSION_SERVER or "pi-session-server"
  local command = vim.list_extend({ program, "--framing", "lines", "--dialect", "jsonrpc" }, options)
  local started, job = pcall(vim.fn.jobstart, command, {
    on_stdout = function(_, pieces) client:receive(pieces) end,
    on_stderr = function(_, pieces) handlers.on_complaint(table.concat(pieces, "\n")) end,
    on_exit = function(_, status) client.status = status end,
  })
  if not started or job <= 0 then error("The server cannot be started: there is no program " .. program .. ".", 0) end
  client.job = job
  return client
end

--- Sends a request and returns its result, or nil and the error, which has code, message and data.name.
function Client:call(method, params)
  self.last_id = self.last_id + 1
  local id = self.last_id
  -- An empty table would become an array, which the server refuses.
  self:send({ id = id, method = method, params = params or vim.empty_dict() })
  vim.wait(60000, function() return self.replies[id] or self.status end, 10)
  local reply = self.replies[id]
  self.replies[id] = nil
  if reply then return reply.result, reply.error end
  local what = self.status and "ended before it answered " or "has not answered within 60 s: "
  error("The server " .. what .. method .. ".", 0)
end

--- Lets the server finish all that was sent, waits for its end and returns its exit status.
function Client:close()
  self:call("shutdown")
  vim.fn.chanclose(self.job, "stdin")
  vim.wait(60000, function() return self.status end, 10)
  return self.status
end

function Client:send(message)
  message.jsonrpc = "2.0"
  -- This fails when the server has ended, which `on_exit` notices.
  pcall(vim.fn.chansend, self.job, vim.json.encode(message) .. "\n")
end

--- Takes output, cut at line feeds: the first piece continues the last one of the call before.
function Client:receive(pieces)
  table.insert(self.pieces, pieces[1])
  for i = 2, #pieces do
    local decoded, message = pcall(vim.json.decode, table.concat(self.pieces))
    self.pieces = { pieces[i] }
    if not decoded then
      vim.fn.jobstop(self.job) -- This is another program.
    elseif not message.method then
      self.replies[message.id] = message
    elseif message.id then
      local answer = self.handlers.on_hook(message.method, message.params)
      self:send({ id = message.id, result = answer or vim.NIL })
    else
      self.handlers.on_event(message.method, message.params)
    end
  end
end

-- The demonstration: prints the lines that README.md shows.

local function say(...) io.write(string.format(...), "\n") end

local function entry(role, content)
  return { type = "message", message = { role = role, content = content } }
end

--- The content of a message is a string or a list of blocks.
local function text_of(message)
  if type(message.content) == "string" then return message.content end
  return table.concat(vim.tbl_map(function(block) return block.text or "" end, message.content))
end

local function demonstrate()
  local events = {}
  local server = Client.start({ "--session-dir", vim.fn.tempname() }, {
    on_event = function(name) table.insert(events, name) end,
    on_hook = function(name) say("hook: %s", name) end,
    on_complaint = function(text) io.stderr:write(text) end,
  })
  --- Calls what is expected to succeed.
  local function call(method, params)
    local result, failure = server:call(method, params)
    if failure then error(failure.message, 0) end
    return result
  end
  local info = call("initialize", { capabilities = { hooks = { { name = "session_before_fork" } } } })
  say("server: %s, protocol %d", info.serverInfo.name, info.protocolVersion)

  local answer = entry("assistant", { { type = "text", text = "Blue." } })
  local turn = { entries = { entry("user", "Grüße, 世界 🌍! Name a colour."), answer }, idempotencyKey = "turn-1" }
  local appended = call("append", turn)
  say("append: %d entries", #appended.entryIds)
  local same = vim.deep_equal(call("append", turn), appended)
  say("append with the same key: %s entries", same and "the same" or "other")
  for _, message in ipairs(call("get_messages").messages) do say("%s: %s", message.role, text_of(message)) end

  say("fork before: %s", call("fork", { entryId = appended.entryIds[1] }).text)
  call("append", { entries = { entry("user", ("é"):rep(700000)) }, idempotencyKey = "turn-2" })
  say("long message: %d characters", vim.fn.strchars(text_of(call("get_messages").messages[1])))
  local _, failure = server:call("get_entry", { entryId = "ffffffff" })
  say("failure: %s (%d)", failure.data.name, failure.code)

  local status = server:close()
  say("events: %s", table.concat(events, " "))
  say("exit status: %d", status)
  return status
end

local done, outcome = pcall(demonstrate)
if not done then io.stderr:write(outcome, "\n") end
io.stdout:flush()
vim.cmd("cquit " .. (done and outcome or 1))
