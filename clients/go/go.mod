module rideau

go 1.19
